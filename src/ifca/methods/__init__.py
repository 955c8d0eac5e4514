"""One file per method: what distinguishes IFCA from its baselines. Nobody else knows their names."""
