"""Means and variances that clients tell of their own features and targets, and the scaling they add up to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ifca.data.clients import features
from ifca.data.scaling import Scaling

Moments = tuple[float, ...]
"""Means, then variances; empty: not told."""
LARGEST = (
    1e150  # the square of a larger one may be infinite, and with it the scale of all; NaN is not smaller
)


def moments_of(values: Tensor) -> list[float]:
    """Of one client's features or targets [n, ...]."""
    flat = features(values, torch.float64).reshape(len(values), -1)
    return [*flat.mean(0).tolist(), *flat.var(0, correction=0).tolist()]


def are_possible(moments: Moments, shape: tuple[int, ...]) -> bool:
    """Whether an honest client may say this of samples of a shape."""
    size = math.prod(shape)
    return not moments or (
        len(moments) == 2 * size and all(abs(one) < LARGEST for one in moments) and min(moments[size:]) >= 0
    )


def scaling_of(told: Sequence[tuple[int, Moments]], shape: tuple[int, ...]) -> Scaling | None:
    """Over all clients: what Scaling.of finds in their data. told: samples and moments of each.

    None: somebody did not say.
    """
    if not all(moments for _, moments in told):
        return None
    share = torch.tensor([samples for samples, _ in told], dtype=torch.float64)[:, None]
    means, variances = torch.tensor([moments for _, moments in told], dtype=torch.float64).chunk(2, 1)
    share = share / share.sum()
    mean = (share * means).sum(0)
    scale = (share * (variances + (means - mean) ** 2)).sum(0).sqrt()
    largest = means.abs().amax(0).reshape(shape)
    return Scaling.with_constants(mean.reshape(shape), scale.reshape(shape), largest)
