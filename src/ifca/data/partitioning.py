"""Any labelled data set as a federation with known clusters: samples are dealt, populations change theirs.

Everything random is a function of the seed and of what it is for: the same call makes the same federation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ifca.core.errors import InvalidInput
from ifca.core.random import shuffled
from ifca.data.assemble import as_array
from ifca.data.clients import Client
from ifca.data.dealing import Deal, Ints, client_sizes, deal_rows
from ifca.data.federation import Federation
from ifca.data.formats.npz_file import read_npz
from ifca.data.population import Population, changed_features, changed_targets, with_wrong_labels


class Labelled(NamedTuple):
    """Samples with their labels or targets."""

    x: NDArray[Any]  # [n, ...]
    y: NDArray[Any]  # [n]


def partition(
    x: ArrayLike,
    y: ArrayLike,
    x_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    *,
    deal: Deal | None = None,
    populations: Sequence[Population] = (Population(),),
    test_share: float = 0.2,
    classes: int | None = None,
    seed: int = 0,
) -> Federation:
    """A federation whose true clusters are the populations.

    x, y: samples (images [n, height, width], [n, channels, height, width], or features [n, d]) with class
    numbers or float targets. x_test, y_test: samples to test on; None: test_share of x and y, at random.

    Every population deals all samples (those of its labels) in an order of its own; none is dealt twice in a
    population before all were. A client's test samples follow the law of its training samples, and no test
    sample is anybody's training sample.
    """
    deal = deal or Deal()
    train, test = _parts(x, y, x_test, y_test, test_share, seed)
    if train.y.dtype.kind == "f":
        if deal.skewed or any(p.labels is not None or p.wrong_labels for p in populations):
            raise InvalidInput("label skew, label groups and wrong labels need class numbers y, got floats")
    elif classes is None:
        classes = int(max(train.y.max(), test.y.max())) + 1
    sizes, found, first = client_sizes(deal, seed), list[Client](), 0
    for j, (population, count) in enumerate(zip(populations, _counts(deal, populations), strict=True)):
        numbers = np.arange(first, first + count)
        found += _members(deal, population, j, numbers, sizes[numbers], train, test, classes, seed)
        first += count
    return Federation.from_clients(found, classes=classes)


def _members(
    deal: Deal,
    population: Population,
    j: int,
    numbers: Ints,
    sizes: Ints,
    train: Labelled,
    test: Labelled,
    classes: int | None,
    seed: int,
) -> list[Client]:
    """The clients of population j; numbers, sizes: of each client."""
    usable = [_usable(population, part.y, name) for part, name in ((train, "train"), (test, "test"))]
    base = np.bincount(train.y[usable[0]]) / len(usable[0]) if deal.skewed else np.empty(0)
    tests = np.full(len(numbers), deal.test_samples)
    rows = [
        deal_rows(deal, name, some, part.y, base, size, numbers, seed)
        for name, some, part, size in (("train", usable[0], train, sizes), ("test", usable[1], test, tests))
    ]
    deviation, members = train.x.std(0), []
    for i, *both in zip(numbers.tolist(), *rows, strict=True):
        x, x_test = (
            changed_features(population, part.x[some], deviation, seed, j, (place, i))
            for place, (part, some) in enumerate(zip((train, test), both, strict=True))
        )
        y, y_test = (
            changed_targets(population, part.y[some], classes, seed, j)
            for part, some in zip((train, test), both, strict=True)
        )
        if classes is not None:
            y = with_wrong_labels(y, population.wrong_labels, classes, seed, i)
        members.append(Client(x, y, x_test, y_test, f"{j}-{i:04d}", j))
    return members


def _parts(
    x: ArrayLike,
    y: ArrayLike,
    x_test: ArrayLike | None,
    y_test: ArrayLike | None,
    test_share: float,
    seed: int,
) -> tuple[Labelled, Labelled]:
    """Training and test samples."""
    if (x_test is None) != (y_test is None):
        raise InvalidInput("x_test and y_test must both be given, or neither")
    whole = _labelled(x, y, "")
    if x_test is not None and y_test is not None:
        return whole, _labelled(x_test, y_test, "_test")
    held_out = round(test_share * len(whole.x))
    if not 0 < held_out < len(whole.x):
        raise InvalidInput(f"test_share = {test_share} of {len(whole.x)} samples leaves a part empty")
    order = shuffled(seed, "partition-test", np.array([len(whole.x)]), np.array([0]))[0]
    mine, tests = np.sort(order[held_out:]), np.sort(order[:held_out])
    return Labelled(whole.x[mine], whole.y[mine]), Labelled(whole.x[tests], whole.y[tests])


def _labelled(x: ArrayLike, y: ArrayLike, name: str) -> Labelled:
    both = Labelled(as_array(f"x{name}", "partition", x), as_array(f"y{name}", "partition", y))
    if both.x.ndim < 2 or both.y.ndim != 1 or len(both.x) != len(both.y) or not len(both.x):
        shapes = f"{both.x.shape} and {both.y.shape}"
        raise InvalidInput(f"x{name} and y{name} must be [n, ...] and [n] with n of at least 1, got {shapes}")
    if both.y.dtype.kind != "f":
        both = both._replace(y=both.y.astype(np.int64))
        if int(both.y.min()) < 0:
            raise InvalidInput(f"y{name} has the label {both.y.min()}; labels start at 0")
    return both


def _counts(deal: Deal, populations: Sequence[Population]) -> list[int]:
    """Clients of each population: those that are given, the rest by shares, largest remainder first."""
    if not populations:
        raise InvalidInput("a partition needs at least one population")
    counts = [p.clients or 0 for p in populations]
    free = [j for j, p in enumerate(populations) if p.clients is None]
    left = deal.clients - sum(counts)
    if left < len(free) or (left and not free):
        raise InvalidInput(f"clients = {deal.clients} do not fill {len(populations)} populations as given")
    total = sum(populations[j].share for j in free)
    exact = {j: left * populations[j].share / total for j in free}
    for j in free:
        counts[j] = int(exact[j] + 1e-9)
    for j in sorted(free, key=lambda j: (counts[j] - exact[j], j))[: deal.clients - sum(counts)]:
        counts[j] += 1
    if min(counts) < 1:
        raise InvalidInput(f"population {counts.index(0)} has no client: give it clients or a larger share")
    return counts


def _usable(population: Population, y: NDArray[Any], name: str) -> Ints:
    """The samples that a population deals."""
    if population.labels is None:
        return np.arange(len(y))
    rows = np.flatnonzero(np.isin(y, population.labels))
    if not len(rows):
        raise InvalidInput(f"labels {list(population.labels)}: no {name} sample has one of them")
    return rows


def read_samples(file: Path) -> tuple[NDArray[Any], ...]:
    """x, y (and x_test, y_test, where there are) of a .npz file; no pickles are opened."""
    content = read_npz(file)
    names = ("x", "y", "x_test", "y_test") if "x_test" in content else ("x", "y")
    if missing := [name for name in names if name not in content]:
        raise InvalidInput(f"{file}: must be a .npz file with arrays x and y (it has no {missing[0]})")
    return tuple(content[name] for name in names)
