"""Configs and run folders: run, resume, compare, choose k; whom to tell."""
