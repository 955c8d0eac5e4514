"""How good are models and clusters, compared up to permutation of the clusters' numbers; who is served badly.

Scikit-learn is imported where it is used: a federation's clients, whose processes start for every message,
never need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def v_measure(true: ArrayLike, found: ArrayLike) -> float:
    """V-measure with beta = 1: the harmonic mean of homogeneity and completeness, 1: the same partition.

    It equals NMI, the mutual information over the arithmetic mean of the two entropies.
    """
    from sklearn.metrics import v_measure_score

    return min(1.0, float(v_measure_score(np.asarray(true), np.asarray(found))))  # rounding may pass 1


def agreement(true: ArrayLike, found: ArrayLike) -> dict[str, float]:
    """Recovered against true clusters in all measures, by name; nmi and v_measure are one number (above)."""
    both_names = v_measure(true, found)
    return {
        "cluster_accuracy": cluster_accuracy(true, found),
        "adjusted_rand_index": adjusted_rand_index(true, found),
        "nmi": both_names,
        "v_measure": both_names,
    }


def rounds_to(by_round: Sequence[float | None], level: float = 0.9) -> int | None:
    """The first round, counted from 1, from which on every value is at least the level; None: never.

    Reached and stayed: a value that falls below the level later was not reached. None: below.
    """
    below = [t for t, value in enumerate(by_round, 1) if value is None or value < level]
    first = below[-1] + 1 if below else 1
    return first if first <= len(by_round) else None


def worst_tenth(values: Sequence[float], *, higher_is_better: bool) -> float | None:
    """Mean over the tenth of the clients that is served worst: m / 10 of m, rounded down, at least one."""
    if not len(values):
        return None
    ordered = sorted(values, reverse=not higher_is_better)
    return float(np.mean(ordered[: max(1, len(values) // 10)]))


def served_worse(
    mine: Mapping[str, float], other: Mapping[str, float], *, higher_is_better: bool
) -> list[str]:
    """The clients whose value in mine is strictly worse than in other, in the order of mine; a tie is not."""
    both = [name for name in mine if name in other]
    if higher_is_better:
        return [name for name in both if mine[name] < other[name]]
    return [name for name in both if mine[name] > other[name]]


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
