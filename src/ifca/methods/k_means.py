"""K-means from ten starts at once: scikit-learn's KMeans(k, n_init=10, random_state=0), draw for draw.

Written out because it takes a second to import and has no GPU; here a pass over the points, on any device,
serves all starts. Partitions are the same but for ties in rounding.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

STARTS, LONGEST = 10, 300  # starts, and steps of each
ROUNDING = 1e-12  # of the points' squared lengths: costs that differ by less are worked out one by one
SMALL = 1e-4  # of the points' mean variance: centers that move by less, squared, stand still


def k_means(points: Tensor, k: int) -> Tensor:
    """Groups [m] of points [m, q] around zero, in double precision: the partition of the lowest cost."""
    m, square = len(points), points.square().sum(1)
    best = first_centers(points, square, k)  # [starts, k, q]
    group = torch.full((STARTS, m), -1, device=points.device)
    going = torch.arange(STARTS, device=points.device)
    still = SMALL * float(square.mean()) / points.shape[1]  # the points' mean is zero
    for _ in range(LONGEST):
        before = best[going]
        now = nearest(points, before).indices
        best[going] = means(points, now, before)
        moved = (best[going] - before).square().sum((1, 2)) > still
        same = (now == group[going]).all(1)
        group[going] = now
        going = going[moved & ~same]
        if not len(going):
            break
    cost, group = nearest(points, best)
    total = cost.sum(1)
    near = torch.nonzero(total <= total.min() + ROUNDING * square.sum())[:, 0].tolist()
    first, *others = _distinct(group, near)
    costs = [_cost(points, best[start], group[start]) for start in (first, *others)] if others else [0.0]
    return group[min(zip(costs, (first, *others), strict=True))[1]].cpu()


def _distinct(group: Tensor, starts: list[int]) -> list[int]:
    """The starts whose partitions differ, the first of those with the same."""
    kept = list[int]()
    for start in starts:
        if not any(_same(group[start], group[other]) for other in kept):
            kept.append(start)
    return kept


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether groups are the same but for their numbers."""
    pairs = torch.unique(a * len(a) + b)
    return len(pairs) == len(torch.unique(a)) == len(torch.unique(b))


def _cost(points: Tensor, centers: Tensor, group: Tensor) -> float:
    """The squared distances of all points to their centers."""
    return float((points - centers[group]).square().sum())


def first_centers(points: Tensor, square: Tensor, k: int) -> Tensor:
    """K-means++: a point at random, then the best of a few drawn by their squared distance: [starts, k, q].

    square: [m] the points' squared lengths.
    """
    m, tries, every = len(points), 2 + int(math.log(k)), torch.arange(STARTS, device=points.device)
    drawn = np.random.RandomState(0).random_sample((STARTS, 1 + tries * (k - 1)))
    share = torch.from_numpy(drawn).to(points)
    chosen = (share[:, :1] * m).long().clamp(max=m - 1)  # [starts, 1]
    close = _distances(points, square, chosen)[:, 0]
    for c in range(1, k):
        rest = close.cumsum(1)
        at = share[:, 1 + tries * (c - 1) : 1 + tries * c] * close.sum(1, keepdim=True)
        tried = torch.searchsorted(rest, at).clamp(max=m - 1)  # [starts, tries]
        closer = torch.minimum(close[:, None], _distances(points, square, tried))
        best = closer.sum(2).argmin(1)
        close, chosen = closer[every, best], torch.cat([chosen, tried[every, best][:, None]], 1)
    return points[chosen]


def _distances(points: Tensor, square: Tensor, chosen: Tensor) -> Tensor:
    """Squared, from some points [starts, c] to all: [starts, c, m]."""
    products = (points[chosen.flatten()] @ points.t()).view(*chosen.shape, -1)
    return (square[chosen][..., None] - 2 * products + square).clamp(min=0)


def nearest(points: Tensor, centers: Tensor) -> torch.return_types.min:
    """The center next to each point, in each start [starts, m], and their squared distance but for a number
    that is the point's.
    """
    products = (centers.flatten(0, 1) @ points.t()).view(*centers.shape[:2], -1)
    return (centers.square().sum(2, keepdim=True) - 2 * products).min(1)


def means(points: Tensor, group: Tensor, before: Tensor) -> Tensor:
    """Of the points of each group: [starts, k, q]. Groups without points take those farthest from theirs."""
    of = torch.arange(before.shape[1], device=points.device)
    own = (group[:, None] == of[:, None]).to(points.dtype)  # [starts, k, m]
    for start in torch.nonzero((own.sum(2) == 0).any(1))[:, 0].tolist():
        empty = torch.nonzero(own[start].sum(1) == 0)[:, 0]
        far = (points - before[start][group[start]]).square().sum(1).argsort(descending=True)[: len(empty)]
        own[start][:, far] = 0
        own[start][empty, far] = 1
    total = (own.flatten(0, 1) @ points).view_as(before)
    return total / own.sum(2, keepdim=True).clamp(min=1)
