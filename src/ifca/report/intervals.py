"""How sure a mean over samples is, clients being the units: who was tested is drawn, not which samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from ifca.report.read_run import RunFolder

SURE = 0.95
WHICH = (
    "95 % intervals are over clients: how much the number would vary if other clients of the same kind "
    "had been tested (Student's t, each client with the weight of its samples)."
)
WEIGHTS = {"test_accuracy_unseen": "test_samples_unseen", "test_loss_unseen": "test_samples_unseen"}
"""What a client's number weighs, where that is not its test samples."""
Score = tuple[float, float]
"""A client's number, and its weight."""


@dataclass(frozen=True)
class Estimate:
    """A mean over clients and its interval; both ends are None where clients cannot tell."""

    value: float
    low: float | None
    high: float | None
    clients: int

    @property
    def beyond_noise(self) -> bool:
        """Whether 0 is outside the interval."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def scaled(self, by: float) -> Estimate:
        """In another unit."""
        low, high = (None if end is None else by * end for end in (self.low, self.high))
        return Estimate(by * self.value, low, high, self.clients)


def client_scores(run: RunFolder, key: str) -> dict[str, Score]:
    """Client -> its number in a column of clients.csv, and its weight; of those that have it."""
    weight = WEIGHTS.get(key, "test_samples") if key.startswith("test_") else ""
    found = {}
    for row in run.clients:
        if row.get(key, "") != "" and math.isfinite(value := float(row[key])):
            found[row["id"]] = value, float(row.get(weight) or 0) if weight else 1.0
    return {name: score for name, score in found.items() if score[1] > 0}


def estimate(
    scores: Mapping[str, Score], least: float = -math.inf, most: float = math.inf
) -> Estimate | None:
    """The weighted mean of clients' numbers; least, most: what it can be."""
    if not scores:
        return None
    values, weights = np.array(list(scores.values())).T
    return _mean(values, weights, least, most)


def difference(mine: Mapping[str, Score], other: Mapping[str, Score]) -> Estimate | None:
    """How much more the first has, over the clients that have both: each is compared with itself."""
    both = [name for name in mine if name in other]
    if not both:
        return None
    values = np.array([mine[name][0] - other[name][0] for name in both])
    return _mean(values, np.array([mine[name][1] for name in both]))


def _mean(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    weights: np.ndarray[tuple[int], np.dtype[np.float64]],
    least: float = -math.inf,
    most: float = math.inf,
) -> Estimate:
    """A ratio of sums over clients; its error is that of the clients' parts of it."""
    m, total = len(values), weights.sum()
    mean = float((values * weights).sum() / total)
    parts = weights * (values - mean)
    if m < 2 or not parts.any():
        return Estimate(mean, None, None, m)
    error = math.sqrt(float((parts**2).sum()) * m / (m - 1)) / total
    reach = float(stats.t.ppf((1 + SURE) / 2, m - 1)) * error
    return Estimate(mean, max(least, mean - reach), min(most, mean + reach), m)
