"""Which loss is usual for the clients of a cluster: what lies beyond it fits no model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ifca.runs.clients_table import CLIENTS, read_clients
from ifca.training import Fitted

USUAL = 0.99  # share of the training clients whose loss is called usual


def usual_losses(directory: Path) -> dict[int, float]:
    """By cluster: the loss that few of its training clients exceed.

    The losses are those on test data where there are any (a new client's data were not trained on either),
    else those on training data.
    """
    if not (directory / CLIENTS).exists():
        return {}
    rows = read_clients(directory)
    part, cluster = (
        ("test", "test_cluster") if any(row["test_loss"] for row in rows) else ("train", "cluster")
    )
    known = [(row[cluster], row[f"{part}_loss"]) for row in rows if row[f"{part}_loss"]]
    return limits([int(j) for j, _ in known], [float(loss) for _, loss in known])


def usual_losses_of(fitted: Fitted) -> dict[int, float]:
    """The same of a training that is still in memory."""
    if fitted.test is None:
        return limits(fitted.labels.tolist(), fitted.own_loss.tolist())
    rule = fitted.test.paper_rule
    return limits(rule.tolist(), fitted.test.loss(rule).tolist())


def limits(clusters: Sequence[int], losses: Sequence[float]) -> dict[int, float]:
    """By cluster the 99 % quantile, or median plus three robust deviations where that is more.

    A cluster of a few clients has no tail to speak of.
    """
    known: dict[int, list[float]] = {}
    for j, loss in zip(clusters, losses, strict=True):
        if j >= 0 and math.isfinite(loss):
            known.setdefault(j, []).append(loss)
    return {j: _limit(np.array(values)) for j, values in known.items()}


def _limit(values: NDArray[np.float64]) -> float:
    middle = float(np.median(values))
    deviation = 1.4826 * float(np.median(np.abs(values - middle)))
    return max(float(np.quantile(values, USUAL)), middle + 3 * deviation)
