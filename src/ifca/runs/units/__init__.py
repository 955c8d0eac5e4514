"""Resumable units of work: one training each, one line each, whoever asks for them (paper, bench)."""
