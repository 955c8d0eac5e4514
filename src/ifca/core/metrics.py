"""How good are models and clusters, compared up to permutation of the clusters' numbers.

Scikit-learn is imported where it is used: a federation's clients, whose processes start for every message,
never need it.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ifca.core.types import Params


def cluster_accuracy(true: ArrayLike, found: ArrayLike) -> float:
    """Share of clients in the right cluster, under the best one-to-one matching of clusters."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(np.asarray(true), np.asarray(found))
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / table.sum())


def adjusted_rand_index(true: ArrayLike, found: ArrayLike) -> float:
    """Agreement of two partitions, 1: the same, about 0: no better than chance."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(np.asarray(true), np.asarray(found)))


def cluster_sizes(identity: Tensor, k: int) -> list[int]:
    """Number of clients by cluster."""
    sizes: list[int] = torch.bincount(identity[identity >= 0], minlength=k).tolist()
    return sizes


def distance(theta: Params, star: Params) -> float:
    """Mean over j of ||theta_j - theta*_j||, after matching clusters one to one (D3)."""
    from scipy.optimize import linear_sum_assignment

    cost = distances(theta, star)
    rows, columns = linear_sum_assignment(cost)
    return float(cost[rows, columns].mean())


def distances(theta: Params, star: Params) -> NDArray[np.float64]:
    """||theta_i - theta*_j|| for all pairs: [k, k*]."""

    def flat(models: Params) -> Tensor:
        return torch.cat([models[name].flatten(1).double() for name in sorted(theta)], dim=1).cpu()

    return np.asarray(
        torch.cdist(flat(theta), flat(star), compute_mode="donot_use_mm_for_euclid_dist").numpy()
    )
