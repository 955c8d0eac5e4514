"""The anchors: settings of published tables, with the numbers that their sources give.

Recipes are the sources', but for what `differs` says. Nothing is tuned here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import combinations
from typing import Any

import numpy as np
from benchmarks.anchor_models import ALL_BUT_HEAD, clove_cifar, clove_mnist, pfllib_cnn

from ifca.core.random import bits
from ifca.data import Deal, Federation, Population, partition, read_cifar, read_mnist
from ifca.data.public.rotated import Images
from ifca.models import mlp
from ifca.models.task import Factory

Make = Callable[[int], Federation]


@dataclass(frozen=True)
class Anchor:
    """One setting of one published table."""

    table: str  # whose
    setting: str
    make: Make
    """seed -> the federation."""
    model: Factory
    recipe: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    """By the name of the row: what it changes of the recipe."""
    published: dict[str, float] = field(default_factory=dict)
    """Percent, by the name of the row, where the source gives it."""
    differs: str = ""
    """From the source, in a sentence."""
    seeds: tuple[int, ...] = (1, 2, 3)

    @property
    def name(self) -> str:
        """As units call it."""
        return f"{self.table}: {self.setting}"


@lru_cache(1)
def mnist() -> tuple[Images, Images]:
    return read_mnist()


@lru_cache(1)
def cifar() -> tuple[Images, Images]:
    return read_cifar()


Sets = Callable[[], tuple[Images, Images]]


def dealt(
    data: Sets, populations: Callable[[int], tuple[Population, ...]], deal: Deal, seed: int
) -> Federation:
    """A federation of images; populations: of the seed."""
    train, test = data()
    return partition(*train, *test, deal=deal, populations=populations(seed), seed=seed)


def quarter_turns(_seed: int) -> tuple[Population, ...]:
    return tuple(Population(turn=angle) for angle in (0, 90, 180, 270))


def pairs(_seed: int) -> tuple[Population, ...]:
    """Label skew 1: {0, 1}, {2, 3}, ..."""
    return tuple(Population(labels=(c, c + 1)) for c in range(0, 10, 2))


def overlapping(seed: int) -> tuple[Population, ...]:
    """Label skew 2: five sets of four labels, any two with exactly two in common, drawn at random."""
    every = list(combinations(range(10), 4))
    for attempt in range(10_000):
        found: list[tuple[int, ...]] = []
        for i in np.argsort(bits(seed, "label-skew-2", attempt, np.arange(len(every), dtype=np.uint64))):
            if all(len({*every[i]} & {*other}) == 2 for other in found):
                found.append(every[i])
            if len(found) == 5:
                return tuple(Population(labels=labels) for labels in found)
    raise AssertionError("unreachable: such sets exist")


def swaps(_seed: int) -> tuple[Population, ...]:
    """Concept shift: each cluster swaps two pairs of labels."""
    of = (((0, 3), (8, 9)), ((1, 4), (6, 9)), ((1, 2), (3, 6)), ((3, 5), (4, 7)))
    return tuple(Population(permutation=_swapped(two)) for two in of)


def _swapped(two: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    found = list(range(10))
    for a, b in two:
        found[a], found[b] = found[b], found[a]
    return tuple(found)


def alike(_seed: int) -> tuple[Population, ...]:
    return (Population(),)


CLOVE = {
    "rounds": 100,
    "local_epochs": 1,
    "batch_size": 100,
    "optimizer": "adam",
    "weighted": True,
    "evaluate_every": 0,
}
DEALT = {"algorithm": "ifca-plain", "initial": "dealt"}
CLOVE_METHODS: dict[str, dict[str, Any]] = {
    "ifca": {"algorithm": "ifca"},
    "ifca-plain": DEALT,
    "clove": {"algorithm": "clove", "initial": "dealt", "stable_after": 3},
    "global": {"algorithm": "global"},
    "local": {"algorithm": "local"},
}
NET = {"batch_norm": "average", "step_size": 1e-3}
SHARED = {
    "ifca (head only)": {"algorithm": "ifca", "shared": ALL_BUT_HEAD},
    "ifca-plain (head only)": {**DEALT, "shared": ALL_BUT_HEAD},
}
TESTED = (
    "Pixels are from 0 to 1 and not standardised; a client's test images are drawn by the law of its "
    "training images from the whole test set; every cluster draws from all training images."
)
CLOVES = (
    Anchor(
        "CLoVE",
        "MNIST turned, 4 x 10 clients x 500",
        partial(dealt, mnist, quarter_turns, Deal(40, 500, 250)),
        clove_mnist,
        {**CLOVE, "k": 4, "step_size": 1e-2},
        CLOVE_METHODS,
        {"ifca-plain": 95.9, "clove": 97.7},
        TESTED,
    ),
    Anchor(
        "CLoVE",
        "MNIST label skew 1, 5 x 5 clients x 500",
        partial(dealt, mnist, pairs, Deal(25, 500, 400)),
        clove_mnist,
        {**CLOVE, "k": 5, "step_size": 1e-2},
        CLOVE_METHODS,
        {"ifca-plain": 99.1, "clove": 99.8},
        TESTED,
    ),
    Anchor(
        "CLoVE",
        "CIFAR-10 label skew 1, 5 x 3 clients x 500",
        partial(dealt, cifar, pairs, Deal(15, 500, 650)),
        clove_cifar,
        {**CLOVE, **NET, "k": 5},
        CLOVE_METHODS,
        {"ifca-plain": 85.7, "clove": 90.5},
        TESTED,
    ),
    Anchor(
        "CLoVE",
        "CIFAR-10 label skew 2, 5 x 3 clients x 500",
        partial(dealt, cifar, overlapping, Deal(15, 500, 650, alpha=0.5)),
        clove_cifar,
        {**CLOVE, **NET, "k": 5},
        CLOVE_METHODS,
        {"ifca-plain": 63.4, "clove": 66.8},
        f"{TESTED} Each client's class shares are drawn from Dirichlet(0.5).",
    ),
    Anchor(
        "CLoVE",
        "CIFAR-10 label swaps, 4 x 3 clients x 1000",
        partial(dealt, cifar, swaps, Deal(12, 1000, 1000)),
        clove_cifar,
        {**CLOVE, **NET, "k": 4},
        {**CLOVE_METHODS, **SHARED},
        {"ifca-plain": 52.7, "clove": 58.4, "global": 63.1},
        TESTED,
    ),
)
PERSONAL: dict[str, dict[str, Any]] = {
    "ifca": {"algorithm": "ifca", "k": 5},
    "ifca-plain": {"algorithm": "ifca-plain", "k": 5},
    "global": {"algorithm": "global"},
    "local": {"algorithm": "local"},
    **{name: {"algorithm": name} for name in ("per-fedavg", "apfl", "ditto", "fedrep", "fedper")},
}
PFLLIB = {
    "rounds": 100,
    "local_epochs": 1,
    "batch_size": 10,
    "step_size": 5e-3,
    "weighted": True,
    "evaluate_every": 0,
}
TWO_LABELS = {"global": 80.41, "per-fedavg": 99.18, "apfl": 99.41, "ditto": 99.44, "fedrep": 99.56}
DIRICHLET = {"global": 85.85, "per-fedavg": 95.10, "apfl": 97.25, "ditto": 97.47, "fedrep": 97.56}
SMALL = (
    "Published on Fashion-MNIST with all 70,000 images, 2000 rounds, best round; here 20 clients x 600 "
    "images of {}, 100 rounds, last round. IFCA is not in the source's table."
)


def pfllib(
    setting: str, data: Sets, model: Factory, deal: Deal, published: dict[str, float], what: str
) -> Anchor:
    """PFLlib's leaderboard; published where the data are like the source's."""
    make = partial(dealt, data, alike, deal)
    return Anchor(
        "PFLlib", f"{what}, {setting}", make, model, PFLLIB, PERSONAL, published, SMALL.format(what)
    )


GREY, COLOURED = partial(pfllib_cnn, 1, 28), partial(pfllib_cnn, 3, 32)


def pfllibs(fashion: str | None) -> tuple[Anchor, ...]:
    """PFLlib's two settings on each data set. fashion: a folder with Fashion-MNIST's files, if any."""
    sets: list[tuple[str, Sets, Factory]] = [("MNIST", mnist, GREY), ("CIFAR-10", cifar, COLOURED)]
    if fashion is not None:
        sets.append(("Fashion-MNIST", lru_cache(1)(partial(read_mnist, fashion, verify=False)), GREY))
    return tuple(
        pfllib(setting, data, model, deal, published if "MNIST" in what else {}, what)
        for what, data, model in sets
        for setting, deal, published in (
            ("two labels each", Deal(20, 600, 200, classes_per_client=2), TWO_LABELS),
            ("Dirichlet(0.1)", Deal(20, 600, 200, alpha=0.1), DIRICHLET),
        )
    )


PFLLIBS = pfllibs(os.environ.get("FASHION_MNIST"))
TURNED = (
    Anchor(
        "StoCFL",
        "MNIST turned, 200 clients, 20 a round",
        partial(dealt, mnist, quarter_turns, Deal(200, 300, 200)),
        partial(mlp, 784, 10, (2048,)),
        {
            "k": 4,
            "rounds": 200,
            "local_epochs": 5,
            "batch_size": 50,
            "step_size": 0.1,
            "participation": 0.1,
            "evaluate_every": 0,
        },
        {name: {"algorithm": name} for name in ("ifca", "ifca-plain", "stocfl", "global")},
        differs="The source's numbers are not in reach. Clients have 300 images each.",
    ),
    Anchor(
        "SR-FCA",
        "MNIST turned, 100 clients, 10 a round",
        partial(dealt, mnist, quarter_turns, Deal(100, 600, 200)),
        partial(mlp, 784, 10),
        {
            "k": 4,
            "rounds": 50,
            "local_steps": 5,
            "batch_size": 50,
            "optimizer": "adam",
            "step_size": 2e-4,
            "participation": 0.1,
            "evaluate_every": 0,
        },
        {name: {"algorithm": name} for name in ("ifca", "ifca-plain", "sr-fca", "global", "local")},
        differs="The source's numbers are not in reach. Clients have 600 images each.",
    ),
)
