"""Streams of data whose laws change (FedDrift's): concepts that come suddenly, go, and return.

A stream has 10 clients and 10 time steps; at every step each client draws new samples from the concept that
it has then. Concepts share their features and differ in the labels only:

sea      three features from 0 to 10, the third without meaning; class 1 where the first two sum to at most
         9, 8, 7 or 9.5; every tenth label is wrong (4 concepts)
sine     two features from 0 to 1; class 1 below the curve sin(x), or above it (2 concepts)
circle   two features from 0 to 1; class 1 inside a small circle, or inside another, larger one (2 concepts)
digits   scikit-learn's digits as they are, or with 1 and 2, 3 and 4, or 5 and 6 swapped (4 concepts)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.core.random import bits
from ifca.data.clients import Client
from ifca.data.federation import Federation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Plan = Literal["together", "staggered"]
CLIENTS, STEPS = 10, 10
SEA = (9.0, 8.0, 7.0, 9.5)
CIRCLES = ((0.2, 0.5, 0.15), (0.6, 0.5, 0.25))
SWAPS = ((0, 0), (1, 2), (3, 4), (5, 6))
CONCEPTS = {"sea": 4, "sine": 2, "circle": 2, "digits": 4}
"""Name of a stream -> how many concepts it has."""
PLANS: tuple[Plan, ...] = ("together", "staggered")


def change_points(plan: Plan, concepts: int) -> Ints:
    """The concept of each client at each step: [10 steps, 10 clients].

    together: the first five clients leave concept 0 at step 3 and return at step 6, the others leave at
    step 4 and return at step 7; nobody has concept 0 in steps 4 and 5, nobody another one in steps 7 and 8;
    at step 9 the first five leave once more for where they had been. staggered: two clients leave at each of
    the steps 1 to 5, and each returns four steps later.
    """
    if plan not in PLANS:
        raise InvalidInput(f"plan must be one of {', '.join(PLANS)}, got {plan!r}")
    if concepts < 2:
        raise InvalidInput(f"concepts must be at least 2, got {concepts}")
    found = np.zeros((STEPS, CLIENTS), np.int64)
    if plan == "together":
        found[3:6, :5] = found[9, :5] = 1
        found[4:7, 5:] = min(2, concepts - 1)
        return found
    for i in range(CLIENTS):
        found[1 + i // 2 : 5 + i // 2, i] = 1 + i % (concepts - 1)
    return found


def drift_stream(
    name: str, plan: Plan = "together", samples: int = 200, test_samples: int = 100, seed: int = 0
) -> list[Federation]:
    """The federation of each of the 10 steps; true clusters are the concepts. Clients keep their names."""
    if name not in CONCEPTS:
        raise InvalidInput(f"unknown stream {name} (known: {', '.join(CONCEPTS)})")
    if samples < 1 or test_samples < 1:
        raise InvalidInput("samples and test_samples must be at least 1")
    return [
        Federation.from_clients(
            [
                _client(name, int(concept), i, samples, test_samples, _generator(seed, name, t, i))
                for i, concept in enumerate(row)
            ],
            10 if name == "digits" else 2,
        )
        for t, row in enumerate(change_points(plan, CONCEPTS[name]))
    ]


def _generator(seed: int, name: str, t: int, client: int) -> np.random.Generator:
    return np.random.default_rng(int(bits(seed, f"drift-{name}", t, client)[0]))


def _client(name: str, concept: int, i: int, n: int, test: int, rng: np.random.Generator) -> Client:
    x, y = _DRAWS[name](concept, n + test, rng)
    return Client(x[:n], y[:n], x[n:], y[n:], f"client-{i}", concept)


def _sea(concept: int, n: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
    x = rng.uniform(0, 10, (n, 3))
    wrong = rng.random(n) < 0.1
    return x, ((x[:, 0] + x[:, 1] <= SEA[concept]) ^ wrong).astype(np.int64)


def _sine(concept: int, n: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
    x = rng.random((n, 2))
    return x, ((x[:, 1] < np.sin(x[:, 0])) ^ (concept == 1)).astype(np.int64)


def _circle(concept: int, n: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
    x, (a, b, r) = rng.random((n, 2)), CIRCLES[concept]
    return x, ((x[:, 0] - a) ** 2 + (x[:, 1] - b) ** 2 < r**2).astype(np.int64)


@cache
def _all_digits() -> tuple[Floats, Ints]:
    from sklearn.datasets import load_digits  # here: it takes a second to import

    x, y = load_digits(return_X_y=True)
    return x, y


def _digits(concept: int, n: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
    x, y = _all_digits()
    chosen = rng.integers(0, len(y), n)
    labels = np.arange(10)
    a, b = SWAPS[concept]
    labels[[a, b]] = labels[[b, a]]
    return x[chosen] / 16, labels[y[chosen]].astype(np.int64)


_DRAWS: dict[str, Callable[[int, int, np.random.Generator], tuple[Floats, Ints]]] = {
    "sea": _sea,
    "sine": _sine,
    "circle": _circle,
    "digits": _digits,
}
