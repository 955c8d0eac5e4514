"""Means over seeds, intervals of shares, exponents of power laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LARGE = 1e150


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and population standard deviation; of numbers without end the latter is none."""
    largest = max(map(abs, values), default=0.0)
    unit = largest if LARGE < largest < np.inf else 1.0  # sums and squares of larger ones are no numbers
    scaled = np.asarray(values, dtype=np.float64) / unit
    with np.errstate(invalid="ignore"):
        return float(np.mean(scaled) * unit), float(np.std(scaled) * unit)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95% interval of a probability."""
    from scipy.stats import binomtest  # late: a unit on a GPU machine needs no statistics

    if trials == 0:
        return 0.0, 1.0
    found = binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)


class Slope(NamedTuple):
    """A straight line through points: its slope with a 95% interval, and where it crosses zero."""

    slope: float
    low: float
    high: float
    intercept: float


def line_through(x: Sequence[float], y: Sequence[float]) -> Slope:
    """Least squares, with Student's interval of the slope."""
    from scipy.stats import linregress
    from scipy.stats import t as student

    if len(x) < 3 or len(set(x)) < 2:
        raise ValueError("a slope with an interval needs three points at two places")
    found = linregress(x, y)
    slope, error = float(found.slope), float(np.nan_to_num(found.stderr))  # NaN where all y are equal
    half = float(student.ppf(0.975, len(x) - 2)) * error
    return Slope(slope, slope - half, slope + half, float(found.intercept))


def power_law(x: Sequence[float], y: Sequence[float]) -> Slope:
    """The exponent of y = c x^exponent; intercept: log c."""
    return line_through(np.log(x).tolist(), np.log(y).tolist())
