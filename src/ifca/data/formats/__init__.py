"""Readers of the files that others hand over, one per format; what is wrong is one sentence."""
