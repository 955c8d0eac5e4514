"""Clusters from what clients lose under each other's models: distances, neighbours, pivots (SR-FCA)."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.identity import identity, one_hot


def distances(losses: Tensor) -> Tensor:
    """d_ij = (f_i(theta_j) + f_j(theta_i)) / 2 of losses f_i(theta_j) [m, m]; NaN where one is not known."""
    return (losses + losses.T) / 2


def limit_of(near: Tensor) -> float:
    """The value that parts the distances of all pairs in two with the least variance within the two parts.

    Midway between the parts. Distances that are all the same are not parted: infinity.
    """
    m = len(near)
    value = near[torch.triu(torch.ones(m, m, dtype=torch.bool), 1)]
    value = value[value.isfinite()].double().sort().values
    cuts = torch.nonzero(value[1:] > value[:-1])[:, 0] + 1  # so many are below
    if not len(cuts):
        return math.inf
    least, value = float(value[0]), value - value[0]
    below, whole = value.cumsum(0)[cuts - 1], value.sum()
    between = below.square() / cuts + (whole - below).square() / (len(value) - cuts)  # most: least within
    cut = int(cuts[between.argmax()])
    return least + float(value[cut - 1] + value[cut]) / 2


def pivots(neighbours: Tensor, order: NDArray[np.int64]) -> Tensor:
    """The first in the order and its neighbours are group 0; the first of those left and its own are 1; etc.

    neighbours: [m, m]; returns [m].
    """
    group, count = torch.full((len(order),), -1), 0
    for i in order.tolist():
        if group[i] < 0:
            group[(neighbours[i] | (torch.arange(len(order)) == i)) & (group < 0)] = count
            count += 1
    return group


def kept_groups(group: Tensor, near: Tensor, k: int) -> Tensor:
    """At most k groups, of more the largest, and none of one client where others are larger; clients of the
    others go to the group that they are nearest to on average. Numbered in the old order.
    """
    sizes = torch.bincount(group)
    large = torch.nonzero(sizes > min(1, int(sizes.max()) - 1))[:, 0]
    kept = large[sizes[large].sort(descending=True, stable=True).indices[:k]].sort().values
    member = one_hot(group, len(sizes))[:, kept]  # [m, kept]
    apart = torch.stack([near[:, own].nanmean(1) for own in member.T], 1)
    return torch.where(member.any(1), member.long().argmax(1), identity(apart))


def to_clusters(losses: Tensor, crossed: Tensor, own: Tensor) -> Tensor:
    """(f_i(theta_c) + f_c(theta_i)) / 2 for each client and cluster [m, k]; one of the two where only one is
    known, NaN where theta_c is not there.

    losses: f_i(theta_c) [m, k]; crossed: f_j(theta_i) [m, m]; own: [m] clusters. f_c is of the other members.
    """
    others = crossed.clone().fill_diagonal_(torch.nan)
    member = one_hot(own, losses.shape[1])
    back = torch.stack([others[some].nanmean(0) for some in member.T], 1)
    return torch.where(losses.isnan(), torch.nan, torch.stack([losses, back]).nanmean(0))


def between_clusters(losses: Tensor, own: Tensor) -> Tensor:
    """(f_c(theta_e) + f_e(theta_c)) / 2 for each two clusters [k, k], f_c the mean over its members."""
    return distances(torch.stack([losses[some].nanmean(0) for some in one_hot(own, losses.shape[1]).T]))
