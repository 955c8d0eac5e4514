"""The federations of benchmarks/robust.py. Rotated MNIST needs torch and numpy alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from benchmarks.anchor_linear import STRAY, M, mixture

from ifca.core.recipe import Recipe
from ifca.data import Deal, Federation, Population, partition
from ifca.data.public.digits import read_digits, rotated_digits
from ifca.data.public.mnist import rotated_mnist
from ifca.models import linear, mlp
from ifca.models.task import Factory
from ifca.training import Job

BYZANTINE = STRAY / M  # share of the clients of the linear mixture that have a theta of their own


@dataclass(frozen=True)
class Setting:
    """A kind of federation."""

    why: str
    make: Callable[[int], Federation]
    k: int
    model: Factory
    recipe: dict[str, Any]

    def job(self, seed: int, method: str, rule: str, device: torch.device) -> Job:
        """The training without attack."""
        given = {"algorithm": method, "k": self.k, "rounds": 60, "evaluate_every": 0, **self.recipe}
        recipe = Recipe(**given, aggregation=rule, on_divergence="halve", seed=seed)
        return Job(_federation(self.make, seed), recipe, self.model, device=device)


@lru_cache(1)
def _federation(make: Callable[[int], Federation], seed: int) -> Federation:
    return make(seed)


def two_turns(seed: int) -> Federation:
    """28 clients."""
    return rotated_digits(samples=100, angles=(0, 90), seed=seed)


def four_turns(seed: int) -> Federation:
    """56 clients."""
    return rotated_digits(samples=100, seed=seed)


def few(seed: int) -> Federation:
    """5 clients of each of two turns."""
    return _dealt(Deal(10, 100, 40), seed)


def uneven(seed: int) -> Federation:
    """10 clients of each of two turns, with labels and sizes of their own."""
    return _dealt(Deal(20, 60, 40, alpha=1.0, size_sigma=1.0), seed)


def _dealt(deal: Deal, seed: int) -> Federation:
    turns = tuple(Population(turn=angle) for angle in (0, 90))
    return partition(*read_digits(), deal=deal, populations=turns, seed=seed)


def mnist(seed: int) -> Federation:
    """The paper's m = 1200 clients of n = 200 images, four turns."""
    return rotated_mnist(samples=200, seed=seed)


def linear_mixture(seed: int) -> Federation:
    """BR-IFCA's linear setting (benchmarks/anchor_linear.py)."""
    return mixture(seed)[0]


def small() -> torch.nn.Module:
    """100 hidden units, for the digits."""
    return mlp(64, 10, (100,))


def paper() -> torch.nn.Module:
    """The paper's 200 hidden units."""
    return mlp(784, 10, (200,))


def slopes() -> torch.nn.Module:
    """A linear model through the origin."""
    return linear(20)


MIXTURE = "linear-mixture"
SETTINGS = {
    "digits-2": Setting("28 clients of 100 digits, two turns", two_turns, 2, small, {}),
    "digits-4": Setting("56 clients of 100 digits, four turns", four_turns, 4, small, {}),
    "digits-few": Setting("10 clients of 100 digits, two turns", few, 2, small, {}),
    "digits-uneven": Setting("20 clients, Dirichlet(1) labels, lognormal sizes", uneven, 2, small, {}),
    "mnist-1200": Setting("Rotated MNIST, m = 1200, n = 200, four turns", mnist, 4, paper, {}),
    MIXTURE: Setting(
        "linear mixture, k = 5, m = 200, n = 100, d = 20, 5% Byzantine clients with a theta of their own",
        linear_mixture,
        5,
        slopes,
        # 0.01 of a cluster's mean gradient: option I divides by all m clients, of whom a fifth is in it.
        {"option": "gradient", "step_size": 0.05, "rounds": 300},
    ),
}
