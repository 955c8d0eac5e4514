"""What the people who read these sensors ask for: how far off, in ppm."""

from __future__ import annotations

from torch import Tensor


def mean_error_ppm(output: Tensor, y: Tensor) -> Tensor:
    """Mean absolute error; one number for all of a client's test data."""
    return (output.flatten() - y).abs().mean()


def within_5_ppm(output: Tensor, y: Tensor) -> Tensor:
    """Share of measurements that are right to 5 ppm; a number per sample."""
    return ((output.flatten() - y).abs() <= 5).to(output.dtype)
