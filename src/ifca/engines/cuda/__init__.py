"""Kernels and captured graphs for CUDA, and nothing else."""
