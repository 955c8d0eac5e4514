"""How good are models and clusters, compared up to permutation of the clusters' numbers; who is served badly.

The measures are written out because scikit-learn takes a second to import, and a millisecond for each call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.types import Params


def cluster_accuracy(true: ArrayLike, found: ArrayLike) -> float:
    """Share of clients in the right cluster, under the best one-to-one matching of clusters."""
    return _accuracy(contingency(true, found))


def adjusted_rand_index(true: ArrayLike, found: ArrayLike) -> float:
    """Agreement of two partitions, 1: the same, about 0: no better than chance."""
    return _rand_index(contingency(true, found))


def v_measure(true: ArrayLike, found: ArrayLike) -> float:
    """V-measure with beta = 1: the harmonic mean of homogeneity and completeness, 1: the same partition.

    It equals NMI, the mutual information over the arithmetic mean of the two entropies.
    """
    return _mutual_information(contingency(true, found))


def agreement(true: ArrayLike, found: ArrayLike) -> dict[str, float]:
    """Recovered against true clusters in all measures, by name; nmi and v_measure are one number (above)."""
    table = contingency(true, found)
    both_names = _mutual_information(table)
    return {
        "cluster_accuracy": _accuracy(table),
        "adjusted_rand_index": _rand_index(table),
        "nmi": both_names,
        "v_measure": both_names,
    }


def contingency(true: ArrayLike, found: ArrayLike) -> NDArray[np.int64]:
    """How many clients are in a true and in a found cluster: [true clusters, found clusters]."""
    true, found = np.asarray(true), np.asarray(found)
    if true.ndim != 1 or true.shape != found.shape:
        raise InvalidInput(f"clusters of the same clients are compared, got {true.shape} and {found.shape}")
    rows, row = np.unique(true, return_inverse=True)
    columns, column = np.unique(found, return_inverse=True)
    table = np.zeros((len(rows), len(columns)), np.int64)
    np.add.at(table, (row, column), 1)
    return table


def _accuracy(table: NDArray[np.int64]) -> float:
    from scipy.optimize import linear_sum_assignment  # here: a federation's clients never need it

    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / table.sum())


def _rand_index(table: NDArray[np.int64]) -> float:
    """Of all pairs of clients, those that are together: (in both - by chance) / (the mean - by chance)."""
    counts = (table, table.sum(1), table.sum(0), table.sum())
    both, true, found, pairs = (int((n * (n - 1) // 2).sum()) for n in counts)
    chance, mean = true * found / max(1, pairs), (true + found) / 2
    return 1.0 if mean == chance else (both - chance) / (mean - chance)


def _mutual_information(table: NDArray[np.int64]) -> float:
    """2 I / (H(true) + H(found)), where I = H(true) + H(found) - H(both)."""
    true, found, both = (_entropy(n[n > 0] / table.sum()) for n in (table.sum(1), table.sum(0), table))
    if true + found == 0:
        return 1.0
    return float(np.clip(2 * (true + found - both) / (true + found), 0, 1))  # rounding may pass either


def _entropy(share: NDArray[np.float64]) -> float:
    return -float((share * np.log(share)).sum())


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
