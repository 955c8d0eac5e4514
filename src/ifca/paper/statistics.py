"""Means over seeds, intervals of shares, exponents of power laws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Z95 = 1.959963984540054  # of the normal distribution, for 95%


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and population standard deviation."""
    return float(np.mean(values)), float(np.std(values))


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95% interval of a probability."""
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, Z95**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z95 / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return max(0.0, middle - half), min(1.0, middle + half)


class Slope(NamedTuple):
    """A straight line through points: its slope with a 95% interval, and where it crosses zero."""

    slope: float
    low: float
    high: float
    intercept: float


def line_through(x: Sequence[float], y: Sequence[float]) -> Slope:
    """Least squares, with Student's interval of the slope."""
    from scipy.stats import t as student

    if len(x) < 3 or len(set(x)) < 2:
        raise ValueError("a slope with an interval needs three points at two places")
    found = np.polynomial.polynomial.Polynomial.fit(x, y, 1).convert().coef
    intercept, slope = float(found[0]), float(found[1])
    centred = np.asarray(x) - np.mean(x)
    left = np.asarray(y) - intercept - slope * np.asarray(x)
    error = math.sqrt(float((left**2).sum()) / (len(x) - 2) / float((centred**2).sum()))
    half = float(student.ppf(0.975, len(x) - 2)) * error
    return Slope(slope, slope - half, slope + half, intercept)


def power_law(x: Sequence[float], y: Sequence[float]) -> Slope:
    """The exponent of y = c x^exponent; intercept: log c."""
    return line_through(np.log(x).tolist(), np.log(y).tolist())
