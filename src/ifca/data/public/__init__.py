"""Public data sets: where their files are, and how they become clients."""
