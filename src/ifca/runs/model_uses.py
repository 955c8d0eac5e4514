"""How the clusters' models use the features: what each leans on, and which way a feature pulls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.random import bits
from ifca.core.types import select
from ifca.data.clients import features, targets
from ifca.training import Fitted

LISTED = 12
"""Features in the file at most, those that the models use most differently first."""
SAMPLES = 2_000
"""Of each cluster at most."""
WORK = 20_000_000
"""Samples times features times models at most; with more, fewer samples are looked at."""
LEAST = 50
"""Samples of a cluster, without which nothing is said."""


def model_uses(
    fitted: Fitted, live: list[int], names: list[str], two: NDArray[np.bool_]
) -> dict[str, Any] | None:
    """By feature: how much the loss grows without it, and what the answer gains when it rises.

    leans: the loss of cluster j's model on its own clients' training samples, the feature permuted among
    them, over the loss as it is (permutation importance). pulls: the mean change of the answer of cluster
    j's model, on the same samples of all clusters, when the feature rises from half a standard deviation
    below its value to half above (a feature of two values, see two: from the lower to the higher).
    The answer is the probability of class 1 of two, or the target; of more classes nothing is said.
    """
    d = len(names)
    most = min(SAMPLES, WORK // (d * len(live) ** 2))
    if most < LEAST:
        return None
    rows = [_rows(fitted, j, most) for j in live]
    with torch.no_grad():
        leans = [_leans(fitted, j, *_data(fitted, some)) for j, some in zip(live, rows, strict=True)]
        pulls = _pulls(fitted, live, _data(fitted, np.concatenate(rows))[0], two)
    scaling = getattr(fitted.job.federation, "target_scaling", None)  # where targets were standardised
    unit_size = 1.0 if scaling is None else float(scaling.scale.flatten()[0])
    pulls = None if pulls is None else unit_size * pulls
    leaning = np.array(leans)  # [clusters, d]
    if not np.isfinite(leaning).all() or (pulls is not None and not np.isfinite(pulls).all()):
        return None
    apart = np.ptp(np.log(np.maximum(leaning, 1e-6)), axis=0) if pulls is None else np.ptp(pulls, axis=0)
    order = sorted(range(d), key=lambda c: -apart[c])[:LISTED]
    unit = None if pulls is None else "target" if fitted.job.federation.classes is None else "class 1"
    return {
        "answer": unit,
        "spread": unit_size * _spread(fitted) if unit == "target" else 1.0,
        "features": [
            {
                "name": names[c],
                "two_valued": bool(two[c]),
                "leans": [float(value) for value in leaning[:, c]],
                "pulls": None if pulls is None else [float(value) for value in pulls[:, c]],
            }
            for c in order
        ],
    }


def _rows(fitted: Fitted, j: int, most: int) -> NDArray[np.int64]:
    """Some training samples of cluster j's clients."""
    train = fitted.job.federation.train
    mine = np.repeat(fitted.labels.numpy() == j, train.sizes)
    rows = np.flatnonzero(mine)
    rng = np.random.default_rng(int(bits(fitted.job.recipe.seed, "differences")[0]))
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))


def _data(fitted: Fitted, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    job, train = fitted.job, fitted.job.federation.train
    index = torch.from_numpy(rows).to(train.x.device)
    x, y = train.x[index].to(job.device), train.y[index].to(job.device)
    return features(x, job.dtype), targets(y, job.dtype)


def _leans(fitted: Fitted, j: int, x: Tensor, y: Tensor) -> list[float]:
    task, theta = fitted.job.task, select(fitted.state.theta, j)
    rng = np.random.default_rng(int(bits(fitted.job.recipe.seed, "differences")[0]))
    order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
    loss = float(task.loss(task.output(theta, x), y).mean())
    found = []
    for c in range(x.shape[1]):
        changed = x.clone()
        changed[:, c] = x[order, c]
        without = float(task.loss(task.output(theta, changed), y).mean())
        found.append(without / loss if loss > 0 else math.nan)
    return found


def _pulls(fitted: Fitted, live: list[int], x: Tensor, two: NDArray[np.bool_]) -> NDArray[np.float64] | None:
    """[clusters, features]; None where the answer is not one number."""
    job = fitted.job
    outputs = {2: 2, None: 1}.get(job.federation.classes)
    said = job.task.output(select(fitted.state.theta, live[0]), x[:2])
    if outputs is None or said.numel() != outputs * len(x[:2]):
        return None

    def answer(j: int, given: Tensor) -> Tensor:
        said = job.task.output(select(fitted.state.theta, j), given)
        return said.softmax(1)[:, 1] if outputs == 2 else said.flatten()

    half = x.std(0, correction=0) / 2
    found = np.zeros((len(live), x.shape[1]))
    for c in range(x.shape[1]):
        low, high = x.clone(), x.clone()
        least, most = x[:, c].min(), x[:, c].max()  # a model is asked of no value that does not occur
        low[:, c] = least if two[c] else (x[:, c] - half[c]).clamp(min=least)
        high[:, c] = most if two[c] else (x[:, c] + half[c]).clamp(max=most)
        for place, j in enumerate(live):
            found[place, c] = float((answer(j, high) - answer(j, low)).double().mean())
    return found


def _spread(fitted: Fitted) -> float:
    """The standard deviation of the targets."""
    return float(fitted.job.federation.train.y.double().std(correction=0))
