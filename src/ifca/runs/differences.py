"""differences.json: what distinguishes the clusters of a run, worked out while the data are at hand.

The report reads it and needs no data. It holds means over clusters and nothing of a single sample.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ifca.data import Clients, Federation
from ifca.data.clients import features
from ifca.runs.mean_images import image_shape, mean_images
from ifca.runs.model_uses import model_uses
from ifca.training import Fitted

DIFFERENCES = "differences.json"
LISTED = 12
"""Features in the file at most, those that differ most first."""
SMALLEST = 0.2
"""The least difference of two clusters' means that is told of, in standard deviations of a sample."""
LEVEL = 0.01
"""A difference is told of where chance alone makes one this large with at most this probability.

For all features together: the level of one feature is this, divided by their number.
"""
MOST = 50_000_000
"""Numbers of a table at most; of a larger one every second row of each client is looked at, or fewer."""
WIDEST = 5_000
"""Features of a table at most; more are not compared."""


def differences(fitted: Fitted) -> dict[str, Any] | None:
    """What distinguishes the clusters; None: there are no two, or the data are not on this machine."""
    job, train = fitted.job, fitted.job.federation.train
    live = sorted({j for j in fitted.labels.tolist() if j >= 0})
    if job.method.personal or not job.method.clustered or len(live) < 2 or not len(train.x):
        return None
    found: dict[str, Any] = {
        "clusters": live,
        "label": _labels(fitted, live),
        "target_variance": _target_variance(fitted, live),
    }
    if (shape := image_shape(job.federation)) is not None:
        return found | {"images": mean_images(fitted, live, shape)}
    if len(job.federation.input_shape) != 1 or job.federation.input_shape[0] > WIDEST:
        return found
    names = job.federation.features or tuple(f"feature {i}" for i in range(job.federation.input_shape[0]))
    rows, offsets = _thinned(train, -(-train.x.numel() // MOST))
    x = features(train.x[torch.from_numpy(rows).to(train.x.device)].cpu(), torch.float64)
    if job.federation.scaling is not None:  # back to the units of the table
        x = x * job.federation.scaling.scale.cpu() + job.federation.scaling.mean.cpu()
    values = x.numpy()
    found["features"] = compared(values, offsets, fitted.labels.numpy(), live, list(names))
    found["compared"] = len(names)
    return found | {"uses": model_uses(fitted, live, list(names), two_valued(values))}


def _thinned(clients: Clients, step: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every so many rows of each client, its first among them, and where each client's begin."""
    kept = [np.arange(a, b, step) for a, b in pairwise(clients.offsets.tolist())]
    return np.concatenate(kept), np.cumsum([0, *[len(some) for some in kept]])


def compared(
    x: NDArray[np.float64],
    offsets: NDArray[np.int64],
    labels: NDArray[np.int64],
    live: list[int],
    names: list[str],
) -> list[dict[str, Any]]:
    """The columns of x [rows, d] whose means differ most between clusters, clients being the units.

    Client i owns rows offsets[i] to offsets[i + 1] and is in cluster labels[i].
    """
    sizes = np.diff(offsets)
    client_means = np.add.reduceat(x, offsets[:-1], axis=0) / sizes[:, None]  # [m, d]
    spread = x.std(0)
    means = np.stack([_mean(client_means, sizes, labels == j) for j in live])  # [clusters, d]
    gap = np.ptp(means, axis=0) / np.where(spread > 0, spread, 1.0)
    chance = _chance([client_means[labels == j] for j in live])
    shares = two_valued(x)
    told = [c for c in range(x.shape[1]) if gap[c] >= SMALLEST and chance[c] <= LEVEL / x.shape[1]]
    told = sorted(told, key=lambda c: -gap[c])[:LISTED]
    return [
        {
            "name": names[c],
            "means": [float(value) for value in means[:, c]],
            "spread": float(spread[c]),
            "gap": float(gap[c]),
            "share": bool(shares[c] and abs(x[:, c].min()) < 1e-6 and abs(x[:, c].max() - 1) < 1e-6),
        }
        for c in told
    ]


def two_valued(x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which columns hold two values alone: a category, yes or no."""
    low, high = x.min(0), x.max(0)
    near = 1e-6 * np.maximum(high - low, 1e-300)  # standardising and back leaves rounding
    either = (np.abs(x - low) <= near) | (np.abs(x - high) <= near)
    whole: NDArray[np.bool_] = either.all(0) & (high > low)
    return whole


def _mean(
    client_means: NDArray[np.float64], sizes: NDArray[np.int64], mine: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Over the samples of some clients."""
    weighted: NDArray[np.float64] = np.average(client_means[mine], axis=0, weights=sizes[mine])
    return weighted


def _chance(groups: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The p of a one-way analysis of variance over clients, by column; 0 where it cannot be judged."""
    from scipy import stats  # here: it takes a second to import

    d, m = groups[0].shape[1], sum(len(group) for group in groups)
    free = m - len(groups)
    if free < 1:
        return np.zeros(d)
    mean = np.concatenate(groups).mean(0)
    between = sum(len(group) * (group.mean(0) - mean) ** 2 for group in groups) / (len(groups) - 1)
    within = sum(((group - group.mean(0)) ** 2).sum(0) for group in groups) / free
    ratio = between / np.maximum(within, 1e-300)
    p: NDArray[np.float64] = stats.f.sf(ratio, len(groups) - 1, free)
    return p


def _target_variance(fitted: Fitted, live: list[int]) -> list[float] | None:
    """Of each cluster's test targets, which a squared error is measured against; None: it is none."""
    job, federation = fitted.job, fitted.job.federation
    if (
        federation.classes is not None
        or job.loss is not None
        or fitted.test is None
        or federation.test is None
    ):
        return None
    y = _targets(federation, federation.test)
    served = np.repeat(fitted.test.train_rule.numpy(), federation.test.sizes)
    if y.shape[1] != 1 or not all((served == j).any() for j in live):
        return None
    return [float(y[served == j].var()) for j in live]


def _targets(federation: Federation, clients: Clients) -> NDArray[np.float64]:
    """In the units of the data: [rows, targets]."""
    y = clients.y.cpu().double().reshape(len(clients.y), -1)
    scaling = getattr(federation, "target_scaling", None)  # where targets were standardised
    return (y if scaling is None else y * scaling.scale.flatten() + scaling.mean.flatten()).numpy()


def _labels(fitted: Fitted, live: list[int]) -> list[dict[str, Any]]:
    """The shares of classes, or the targets, where clusters differ in them."""
    federation = fitted.job.federation
    if federation.classes is None:
        values = _targets(federation, federation.train)
        names = ["the target"] if values.shape[1] == 1 else [f"target {i}" for i in range(values.shape[1])]
    else:
        values = (
            torch.nn.functional.one_hot(federation.train.y.cpu().long().flatten(), federation.classes)
            .double()
            .numpy()
        )
        names = [f"class {c}" for c in range(federation.classes)]
    return compared(values, federation.train.offsets, fitted.labels.numpy(), live, names)
