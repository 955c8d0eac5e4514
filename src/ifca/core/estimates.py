"""How sure a mean is: Student's t interval over drawn units (clients, seeds), each with a weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

SURE = 0.95
Score = tuple[float, float]
"""A unit's number, and its weight."""


@dataclass(frozen=True)
class Estimate:
    """A mean over units and its interval; both ends are None where the units cannot tell."""

    value: float
    low: float | None
    high: float | None
    clients: int  # units; of most means these are clients

    @property
    def beyond_noise(self) -> bool:
        """Whether 0 is outside the interval."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def scaled(self, by: float) -> Estimate:
        """In another unit of measure; ends change places where it is negative."""
        ends = sorted(by * end for end in (self.low, self.high) if end is not None)
        low, high = ends if len(ends) == 2 else (None, None)
        return Estimate(by * self.value, low, high, self.clients)


def estimate(
    scores: Mapping[str, Score], least: float = -math.inf, most: float = math.inf
) -> Estimate | None:
    """The weighted mean of units' numbers; least, most: what it can be."""
    if not scores:
        return None
    values, weights = np.array(list(scores.values())).T
    return _mean(values, weights, least, most)


def difference(mine: Mapping[str, Score], other: Mapping[str, Score]) -> Estimate | None:
    """How much more the first has, over the units that have both: each is compared with itself."""
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
    """A ratio of sums over units; its error is that of the units' parts of it."""
    from scipy.stats import t as student  # here: it takes a second to import

    unit = math.ldexp(1.0, math.frexp(float(np.abs(values).max()))[1] - 1)  # squares are finite then
    shares = weights / weights.max()
    values, shares = values / unit, shares / shares.sum()
    mean = float((values * shares).sum())
    m, parts = len(values), shares * (values - mean)
    if m < 2 or not parts.any():
        return Estimate(mean * unit, None, None, m)
    error = math.sqrt(float((parts**2).sum()) * m / (m - 1))
    reach = float(student.ppf((1 + SURE) / 2, m - 1)) * error
    return Estimate(mean * unit, max(least, (mean - reach) * unit), min(most, (mean + reach) * unit), m)
