"""The band of a cluster: what the run's own clients lose there, and whether a loss lies above it.

A further client of the cluster would lose about the clients' mean; how much it may differ has two sources.
Clients differ (their losses spread by tau), and a client's mean loss is that of n drawn samples (they spread
by s). So the test is Welch's: the excess over the mean against

    s^2 / n + tau^2 (1 + 1/c) + s^2 h / c,    tau^2 = V - s^2 h, at least 0,

of c clients of the run whose losses have the variance V, h the mean of 1 / (samples of each). s is that of
the client's own samples, or of the other clients' where theirs is larger. A client of few samples must lose
much more to be above the band than one of many. Losses are skewed to the right: who lost much by chance has a
large s as well, so the test says too little rather than too much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.runs.clients_table import CLIENTS, read_clients
from ifca.runs.usual import limits
from ifca.training import Fitted

LEVEL = 0.01  # of all alarms of one look together (see alarms)


@dataclass(frozen=True)
class Known:
    """A client of the run: its cluster, and its loss there on samples that were not trained on."""

    id: str
    cluster: int
    loss: float
    samples: int
    held_out: bool = True  # False: the run kept no samples apart, so this is its training loss


@dataclass(frozen=True)
class Band:
    """What the clients of one cluster lose."""

    clients: int
    mean: float
    variance: float
    per_sample: float  # h, the mean of 1 / samples
    limit: float  # the usual limit, as of 'ifca assign'

    def test(self, loss: float, variance: float, samples: int) -> tuple[float, float]:
        """T and p of the excess of a client's mean loss. variance: s^2, of a sample's loss."""
        if samples < 2 or not math.isfinite(variance):
            return 0.0, 1.0
        between = max(0.0, self.variance - variance * self.per_sample) * (1 + 1 / self.clients)
        within = variance * (1 / samples + self.per_sample / self.clients)
        excess, error = loss - self.mean, between + within
        if error <= 0:
            return (math.inf, 0.0) if excess > 1e-9 * abs(self.mean) else (0.0, 1.0)
        few = (within / error) ** 2 / (samples - 1) + (between / error) ** 2 / max(1, self.clients - 1)
        degrees = 1 / few
        from scipy.stats import t as student  # here: it takes a second to import

        t = excess / math.sqrt(error)
        return t, float(student.sf(t, degrees))


def bands_of(known: Iterable[Known]) -> dict[int, Band]:
    """By cluster."""
    own: dict[int, list[Known]] = {}
    for one in known:
        own.setdefault(one.cluster, []).append(one)
    found = {}
    for j, some in own.items():
        losses = np.array([one.loss for one in some])
        variance = float(losses.var(ddof=1)) if len(some) > 1 else 0.0
        per_sample = float(np.mean([1 / max(1, one.samples) for one in some]))
        limit = limits([j] * len(some), losses.tolist())[j]
        found[j] = Band(len(some), float(losses.mean()), variance, per_sample, limit)
    return found


def known_clients(directory: Path) -> list[Known]:
    """The clients of a run's folder that trained; held-out losses where all have one."""
    rows = [row for row in read_clients(directory) if row["train_samples"] != "0"]
    held = [(row, row.get("test_loss_train_rule") or row["test_loss"]) for row in rows]
    held_out = any(loss for _, loss in held)
    taken = held if held_out else [(row, row["train_loss"]) for row in rows]
    size = "test_samples" if held_out else "train_samples"
    try:
        return _finite(
            Known(row["id"], int(row["cluster"]), float(loss), int(row[size]), held_out)
            for row, loss in taken
            if loss and int(row["cluster"]) >= 0
        )
    except (TypeError, ValueError) as reason:  # a row that was cut off has None
        raise InvalidInput(f"{directory / CLIENTS}: {reason}; the file was altered") from None


def known_of_fitted(fitted: Fitted) -> list[Known]:
    """The same of a training that is still in memory."""
    clients, labels = fitted.job.federation.train, fitted.labels.tolist()
    if fitted.test is None:
        losses, sizes = fitted.own_loss.tolist(), clients.sizes.tolist()
        taken = zip(clients.ids, labels, losses, sizes, strict=True)
        return _finite(Known(*one, held_out=False) for one in taken if one[1] >= 0)
    test, owner = fitted.test, fitted.job.federation.test_owner.tolist()
    losses, sizes = test.loss(test.train_rule).tolist(), test.sizes.long().tolist()
    return _finite(
        Known(clients.ids[i], labels[i], loss, size)
        for i, loss, size in zip(owner, losses, sizes, strict=True)
        if i >= 0 and labels[i] >= 0
    )


def _finite(known: Iterable[Known]) -> list[Known]:
    return [one for one in known if math.isfinite(one.loss)]


def alarms(p: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of some tests raise an alarm (Benjamini and Hochberg's rule at LEVEL).

    Where nothing has changed, one look in a hundred raises any; else one alarm in a hundred is false.
    """
    raised = np.zeros(len(p), bool)
    order = np.argsort(p, kind="stable")
    below = np.flatnonzero(p[order] <= LEVEL * np.arange(1, len(p) + 1) / max(1, len(p)))
    if len(below):
        raised[order[: below[-1] + 1]] = True
    return raised
