"""Means and variances that clients tell of their own features and targets, and the scaling they add up to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ifca.core.checks import FEWEST
from ifca.data.clients import features
from ifca.data.scaling import Scaling

Moments = tuple[float, ...]
"""Means, then variances; empty: not told."""
LARGEST = 1e150  # squares of larger ones may be infinite, and with them the scale of all; NaN is not smaller
WIDEST = 10.0  # times as far from the middle as any other client's values, no client's count


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


def capped(means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """The moments [m, d] of clients, of whom none reaches farther than WIDEST times any other.

    How far one reaches is the root of its values' mean square around the median of all means. Who reaches
    farther, alone, is drawn in to that limit; otherwise the scale of one could make all others' features
    vanish. All other moments stay as they are, to the last bit.
    """
    if len(means) < FEWEST:
        return means, variances
    middle = means.median(0).values
    reach = (variances + (means - middle) ** 2).sqrt()
    second = reach.topk(2, dim=0).values[1]
    share = WIDEST * second / reach
    far = (share < 1) & (second > 0)  # where all others have one value, nothing can vanish
    return (
        torch.where(far, middle + (means - middle) * share, means),
        torch.where(far, variances * share**2, variances),
    )


def scaling_of(told: Sequence[tuple[int, Moments]], shape: tuple[int, ...]) -> Scaling | None:
    """Over all clients: what Scaling.of finds in their data. told: samples and moments of each.

    None: somebody did not say.
    """
    if not all(moments for _, moments in told):
        return None
    share = torch.tensor([samples for samples, _ in told], dtype=torch.float64)[:, None]
    means, variances = capped(
        *torch.tensor([moments for _, moments in told], dtype=torch.float64).chunk(2, 1)
    )
    share = share / share.sum()
    mean = (share * means).sum(0)
    scale = (share * (variances + (means - mean) ** 2)).sum(0).sqrt()
    largest = means.abs().amax(0).reshape(shape)
    return Scaling.with_constants(mean.reshape(shape), scale.reshape(shape), largest)
