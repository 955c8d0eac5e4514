"""First step of a partition: which samples a client has, by number and by label."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.core.random import bits, shuffled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
SKEWS = ("alpha", "classes_per_client", "dominant")


@dataclass(frozen=True)
class Deal:
    """How many samples each client has, and of which classes.

    At most one of alpha, classes_per_client and dominant; none of them: labels as they are in the data.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}  # in a config
    clients: int = 100
    """m."""
    samples: int = 100
    """Training samples of a client; with size_sigma the median."""
    test_samples: int = 50
    """Test samples of a client, drawn from the test samples by the same law."""
    size_sigma: float = 0.0
    """Quantity skew: sizes are lognormal, samples x exp(size_sigma x N(0, 1)); 0: all are equal."""
    least: int = 5
    """Fewest training samples of a client, where sizes differ."""
    alpha: float | None = None
    """Label skew: a client's shares of the classes are drawn from Dirichlet(alpha)."""
    classes_per_client: int | None = None
    """Each client has so many classes, drawn at random, in equal shares."""
    dominant: float | None = None
    """Share of a client's samples that are of one class, drawn at random; the others as in the data."""

    def __post_init__(self) -> None:
        """Refuse what cannot be dealt, naming the field."""
        for name in ("clients", "samples", "test_samples", "least"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.size_sigma < 0:
            raise InvalidInput(f"size_sigma must be zero or positive, got {self.size_sigma}")
        given = [
            name for name in ("alpha", "classes_per_client", "dominant") if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise InvalidInput(f"{given[0]} and {given[1]} are two kinds of label skew: give one of them")
        if self.alpha is not None and not self.alpha > 0:
            raise InvalidInput(f"alpha must be positive, got {self.alpha}")
        if self.classes_per_client is not None and self.classes_per_client < 1:
            raise InvalidInput(f"classes_per_client must be at least 1, got {self.classes_per_client}")
        if self.dominant is not None and not 0 < self.dominant <= 1:
            raise InvalidInput(f"dominant must be in (0, 1], got {self.dominant}")

    @property
    def skewed(self) -> bool:
        """Whether clients differ in their labels."""
        return any(getattr(self, name) is not None for name in SKEWS)


def client_rng(seed: int, purpose: str, *coordinates: int) -> np.random.Generator:
    """Numpy's generator for one purpose: where gammas, normals or multinomials are drawn."""
    return np.random.default_rng(int(bits(seed, purpose, *coordinates)[0]))


def client_sizes(deal: Deal, seed: int) -> Ints:
    """Training samples of each client: [m]. A client's size does not depend on the number of clients."""
    draws = np.array([client_rng(seed, "deal-size", i).standard_normal() for i in range(deal.clients)])
    sizes = np.rint(deal.samples * np.exp(deal.size_sigma * draws)).astype(np.int64)
    return np.asarray(np.maximum(sizes, min(deal.least, deal.samples)))


def label_shares(deal: Deal, base: Floats, seed: int, client: int) -> Floats:
    """The client's share of each class: [classes]. base: shares in the data, zero where a class is absent."""
    rng, there = client_rng(seed, "deal-labels", client), np.flatnonzero(base)
    shares = np.zeros_like(base)
    if deal.alpha is not None:
        drawn = rng.dirichlet(np.full(len(there), deal.alpha))
        usable = bool(np.isfinite(drawn).all())  # a tiny alpha may underflow to 0 / 0: one class then
        shares[there] = drawn if usable else np.eye(len(there))[rng.integers(len(there))]
    elif deal.classes_per_client is not None:
        if deal.classes_per_client > len(there):
            few = f"there are only {len(there)} classes"
            raise InvalidInput(f"classes_per_client is {deal.classes_per_client}, but {few}")
        shares[rng.choice(there, deal.classes_per_client, replace=False)] = 1 / deal.classes_per_client
    elif deal.dominant is not None:
        shares[:] = base * (1 - deal.dominant)
        shares[rng.choice(there)] += deal.dominant
    else:
        shares[:] = base
    return shares


class Pool:
    """Samples of one population, dealt in a random order; when all are dealt they are dealt again."""

    def __init__(self, rows: Ints, seed: int, purpose: str, *coordinates: int) -> None:
        """rows: the samples that there are."""
        self._next = self._endless(rows, seed, purpose, coordinates)

    @staticmethod
    def _endless(rows: Ints, seed: int, purpose: str, coordinates: tuple[int, ...]) -> Iterator[int]:
        turn = 0
        while True:
            place = [np.array([c]) for c in (*coordinates, turn)]
            yield from rows[shuffled(seed, purpose, np.array([len(rows)]), *place)[0]].tolist()
            turn += 1

    def take(self, count: int) -> list[int]:
        """The next samples."""
        return [next(self._next) for _ in range(count)]


def deal_rows(
    deal: Deal, part: str, rows: Ints, y: Ints, base: Floats, sizes: Ints, clients: Ints, seed: int
) -> list[Ints]:
    """The samples of some clients of one population.

    part: train or test, each with an order of its own; rows: the samples that there are; y: labels of the
    whole part; base: shares of the classes in training; sizes, clients: samples and number of each client.
    """
    first = int(clients[0])  # names the population: its clients' numbers are its own
    if not deal.skewed:
        pool = Pool(rows, seed, f"deal-{part}", first)
        return [np.sort(pool.take(int(size))).astype(np.int64) for size in sizes]
    labels = y[rows]
    pools = {int(c): Pool(rows[labels == c], seed, f"deal-{part}", first, int(c)) for c in np.unique(labels)}
    dealt = []
    for client, size in zip(clients.tolist(), sizes.tolist(), strict=True):
        shares = label_shares(deal, base, seed, client)
        shares[[c for c in range(len(base)) if c not in pools]] = 0
        if not shares.sum():
            raise InvalidInput(f"no {part} sample has one of the classes of client {client}")
        counts = client_rng(seed, f"deal-{part}-counts", client).multinomial(size, shares / shares.sum())
        mine = [row for c, count in enumerate(counts.tolist()) if count for row in pools[c].take(count)]
        dealt.append(np.sort(mine).astype(np.int64))
    return dealt
