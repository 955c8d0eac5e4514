"""Configs, runs and their folders."""
