"""Trackers: TensorBoard and MLflow."""
