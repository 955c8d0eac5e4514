"""The exact fast path of full-batch training, on any device: steps in Gram space."""
