"""Clusters of loss vectors: clients who lose alike under the same models belong together."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from ifca.core.identity import identity

BETTER = 0.1  # share by which the silhouette of a larger K must be better


def clusters(losses: Tensor, seed: int) -> Tensor:
    """K-means on loss vectors [p, k] -> cluster numbers [p]; each its own where there are no more than k."""
    from sklearn.cluster import KMeans  # late: a federation's clients never need it
    from sklearn.exceptions import ConvergenceWarning

    p, k = losses.shape
    if p <= k:
        return torch.arange(p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different clients than k: fewer clusters
        found = KMeans(k, n_init=10, random_state=seed).fit_predict(_finite(losses).numpy())
    return torch.as_tensor(found).long()


def clusters_of_unknown_number(losses: Tensor) -> Tensor:
    """The same by Ward's tree, cut into K = 2, 3, ..., at most as many as models; K by the silhouette, where
    a larger K must be a tenth better. Two clients are two clusters; clients that are all alike are one.
    """
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import silhouette_score

    points = _finite(losses)[:, there(losses)].numpy()
    p, most = points.shape
    rows, row = np.unique(points, axis=0, return_inverse=True)
    if most == 1:
        return torch.zeros(p, dtype=torch.long)
    if len(rows) < 3:
        return torch.from_numpy(row.reshape(p).astype(np.int64))
    best, found = -np.inf, np.zeros(p, np.int64)
    for k in range(2, min(most, p - 1, len(rows)) + 1):
        label = AgglomerativeClustering(k).fit_predict(points)
        score = float(silhouette_score(points, label))
        if not np.isfinite(best) or score > best + BETTER * abs(best):
            best, found = score, label.astype(np.int64)
    return torch.from_numpy(found)


def matched(losses: Tensor, cluster: Tensor) -> Tensor:
    """The model of each client [p]: clusters and models one to one, with the least loss in all."""
    from scipy.optimize import linear_sum_assignment

    own = torch.nn.functional.one_hot(cluster, losses.shape[1]).double()  # [p, k clusters]
    cost = own.T @ _finite(losses)
    cost[:, ~there(losses)] += own.sum(0)[:, None] * (cost.abs().sum() + 1)  # models that are not there
    _, model = linear_sum_assignment(cost.numpy())
    return torch.as_tensor(model)[cluster]


def centroids(losses: Tensor, own: Tensor) -> Tensor:
    """The mean loss vector of each cluster [k, k]; NaN where it has no member. own: [p], -1: in none."""
    own = torch.where(losses.isnan().all(1), -1, own)
    member = (own[:, None] == torch.arange(losses.shape[1])).double()  # [p, k]
    return (member.T @ _finite(losses)) / member.sum(0)[:, None]


def nearest(losses: Tensor, centres: Tensor) -> Tensor:
    """The cluster with the nearest centroid of loss vectors, for each client [p]."""
    some = there(losses)
    gap = _finite(losses)[:, None, some] - centres[None, :, some]
    return identity(gap.square().sum(-1))


def there(losses: Tensor) -> Tensor:
    """Which models somebody could judge: [k]."""
    return ~losses.isnan().all(0)


def _finite(losses: Tensor) -> Tensor:
    """A loss that is no number counts as the largest that is one."""
    finite = losses[losses.isfinite()].double()
    largest = float(finite.max()) if len(finite) else 0.0
    return losses.double().nan_to_num(nan=largest, posinf=largest)
