"""What T rounds of noised sums spend: epsilon(sigma, q, T, delta), and the two ways back.

Adjacency: one client more or less. q = 1: T Gaussian mechanisms are one with noise sigma / sqrt(T), whose
epsilon is known exactly. q < 1: each client is in a round with probability q, by itself (Poisson sampling);
dp-accounting composes the privacy losses of such rounds and rounds them up.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from ifca.core.errors import InvalidInput

GRID = 1e-3  # privacy losses are rounded up to multiples of it
LITTLE = 0.1  # below it a turn spends about 100: epsilon is as if all took part, no less than what is spent
NEAR = 1e-3  # the noise that is found is at most so much more than is needed, relatively


@lru_cache(maxsize=256)
def epsilon(noise: float, participation: float, rounds: int, delta: float) -> float:
    """What is spent. noise: sigma, the noise's standard deviation over the sensitivity."""
    if rounds == 0:
        return 0.0
    if participation == 1 or noise < LITTLE:
        return _gaussian(noise / math.sqrt(rounds), delta)
    return _sampled(noise, participation, rounds, delta)


@lru_cache(maxsize=64)
def noise_for(budget: float, participation: float, rounds: int, delta: float) -> float:
    """The least noise with which so many rounds spend at most the budget."""
    high = math.sqrt(rounds)
    while epsilon(high, 1.0, rounds, delta) > budget:  # who is there in every round is protected least
        high *= 2
    low = high
    while epsilon(low, participation, rounds, delta) <= budget:
        high, low = low, low / 2
    while high > low * (1 + NEAR):
        middle = math.sqrt(low * high)
        if epsilon(middle, participation, rounds, delta) > budget:
            low = middle
        else:
            high = middle
    return high


def rounds_within(budget: float, noise: float, participation: float, delta: float, most: int) -> int:
    """How many rounds spend at most the budget; not more than most."""
    if epsilon(noise, participation, most, delta) <= budget:
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if epsilon(noise, participation, middle, delta) > budget:
            high = middle
        else:
            low = middle
    return low


def accountant(participation: float) -> str:
    """Who says what is spent."""
    if participation == 1:
        return "exact (Gaussian mechanisms, composed)"
    _accounting()
    return f"dp-accounting {version('dp-accounting')} (privacy loss distributions)"


def _gaussian(noise: float, delta: float) -> float:
    """The exact epsilon of one Gaussian mechanism (Balle and Wang 2018, theorem 8)."""
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    def over(eps: float) -> float:
        gone = math.exp(log_ndtr(0.5 / noise - eps * noise))
        return gone - math.exp(eps + log_ndtr(-0.5 / noise - eps * noise)) - delta

    if over(0.0) <= 0:
        return 0.0
    high = 1.0
    while over(high) > 0:
        high *= 2
    return float(brentq(over, 0.0, high, xtol=1e-9))


def _sampled(noise: float, participation: float, rounds: int, delta: float) -> float:
    accounting = _accounting()
    sums = accounting.PoissonSampledDpEvent(participation, accounting.GaussianDpEvent(noise))
    spent = accounting.pld.PLDAccountant(value_discretization_interval=GRID)
    return float(spent.compose(accounting.SelfComposedDpEvent(sums, rounds)).get_epsilon(delta))


def _accounting() -> Any:
    try:
        import dp_accounting
        import dp_accounting.pld
    except ImportError:
        raise InvalidInput(
            "participation below 1 with differential privacy needs an accountant: pip install "
            "'ifca[private]', or set participation = 1"
        ) from None
    return dp_accounting
