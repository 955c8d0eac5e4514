"""Kinds of federations to hold in: named regimes, each a federation by seed and a recipe.

Seeds 0 to 9 are the table's. Step sizes are the paper's 0.1, or were set by the training loss on seeds 1000
and 1001; nothing was set by test accuracy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ifca.bench.sets import Parts
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Deal, Federation, Population, partition
from ifca.models import linear, logistic, mlp
from ifca.models.task import Factory, Loss, squared_error
from ifca.training import Job


@dataclass(frozen=True)
class Regime:
    """A kind of federation: how it is made from a seed, and how it is trained."""

    name: str
    why: str
    """What it is there for, in a line."""
    k: int
    """Clusters asked for."""
    make: Callable[[int], Federation]
    """seed -> the federation."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """Fields of the recipe that differ from the usual ones."""
    model: Callable[[int, int], Factory] = lambda inputs, outputs: lambda: mlp(inputs, outputs)
    """inputs, outputs -> a model."""
    loss: Loss | None = None
    needs: tuple[str, ...] = ()
    """Public data sets that must be there."""
    populations: int | None = 1
    """Number of true clusters; None: not known."""

    def job(self, seed: int) -> Job:
        """Plain IFCA's job; other methods change the recipe."""
        federation = _federation(self.make, seed)
        usual = {"rounds": 60, "local_steps": 10, "step_size": 0.1, "evaluate_every": 0}
        recipe = Recipe(**{**usual, "algorithm": "ifca-plain", "k": self.k, "seed": seed, **self.recipe})
        inputs = int(np.prod(federation.input_shape))
        metrics = {"squared_error": squared_error} if federation.classes is None else {}
        model = self.model(inputs, federation.outputs)
        return Job(federation, recipe, model, self.loss, metrics)


@lru_cache(1)  # all methods of a seed
def _federation(make: Callable[[int], Federation], seed: int) -> Federation:
    return make(seed)


@dataclass(frozen=True)
class Partitioned:
    """The federation of a regime: a data set, a deal and populations; a value, so that it can be compared."""

    data: Callable[[], Parts]
    deal: Deal
    populations: tuple[Population, ...]

    def __call__(self, seed: int) -> Federation:
        """Deal."""
        train, test = self.data()
        tests = (None, None) if test is None else (test.x, test.y)
        return partition(*train, *tests, deal=self.deal, populations=self.populations, seed=seed)


def regime_of(name: str) -> Regime:
    """The regime of this name."""
    known = regimes()
    if name not in known:
        raise InvalidInput(f"unknown regime {name} (known: {', '.join(known)})")
    return known[name]


@lru_cache(1)
def regimes() -> dict[str, Regime]:
    """All of them, by name, in the order of the table."""
    from ifca.bench.image_regimes import CIFAR, DIGITS, MNIST
    from ifca.bench.table_regimes import TABLES

    return {regime.name: regime for regime in (*MNIST, *DIGITS, *CIFAR, *TABLES)}


def turns(*degrees: float, **more: Any) -> tuple[Population, ...]:
    """A population for each angle."""
    return tuple(Population(turn=angle, **more) for angle in degrees)


def logistic_model(inputs: int, outputs: int) -> Factory:
    """Multinomial logistic regression."""
    return lambda: logistic(inputs, outputs)


def linear_model(inputs: int, outputs: int) -> Factory:
    """A linear model with an intercept."""
    return lambda: linear(inputs, outputs, bias=True)


def small_mlp(inputs: int, outputs: int) -> Factory:
    """100 hidden units, as in the default job."""
    return lambda: mlp(inputs, outputs, (100,))
