"""Theorem 2 in numbers: regularised logistic regression, step 1/L, fresh samples in every round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ifca.core.random import generator
from ifca.core.recipe import Recipe
from ifca.data import Clients, Federation
from ifca.models import linear
from ifca.paper.frame import Experiment, Scale
from ifca.paper.theory import described, distances_by_round, exponents, near, number
from ifca.runs.units.unit import Line, Unit
from ifca.training import Job

ROUNDS, ALPHA, L2, NORM, DIMENSION = 30, 0.2, 0.1, 3.0, 10
SMOOTH = 0.25 + L2  # L: E[xx'] = I, and the logistic function's slope is at most 1/4
VARIED = {
    "m": ("20", "40", "80", "160"),
    "n'": ("10", "20", "40", "80", "160"),
    "p": ("1/2", "1/4"),
}
THEOREM = {"m": (-0.5, "while 1/n' is small"), "n'": (-0.5, "-1 where the term 1/n' leads")}
SETTINGS = [f"{name}={value}" for name, some in VARIED.items() for value in some]
QUICK = [s for s in SETTINGS if not s.startswith("p")]


@dataclass(frozen=True)
class Base:
    """What is not varied."""

    m: int = 80
    n: int = 80  # n'
    k: int = 2


def run(unit: Unit, _device: torch.device) -> Line:
    """A training from near the minimisers of the population risks."""
    name, at = unit.setting.split("=")[0], number(unit.setting)
    base = {"m": Base(m=int(at)), "n'": Base(n=int(at)), "p": Base(k=round(1 / at))}[name]
    return trained(base, unit.seed)


def trained(base: Base, seed: int) -> Line:
    """Distances to the minimisers, and the theorem's factor of a round beside the measured one."""
    true = directions(base.k, seed)
    star = shrunk() * true
    recipe = Recipe(algorithm="ifca-plain", k=base.k, rounds=ROUNDS, option="gradient", resample=True)
    recipe = replace(recipe, step_size=1 / SMOOTH, l2=L2, evaluate_every=0, seed=seed)
    job = Job(population(base, true, seed), recipe, lambda: linear(DIMENSION), loss=logistic_loss)
    first = near(star, ALPHA, generator(seed, "near"), condition=L2 / SMOOTH)
    line = described(distances_by_round(job, star, first))
    return {**line, "contraction_bound": 1 - L2 / (8 * SMOOTH * base.k)}


def logistic_loss(output: Tensor, y: Tensor) -> Tensor:
    """Of y in {0, 1}, per sample; without the regulariser, which is the recipe's l2."""
    return F.binary_cross_entropy_with_logits(output.flatten(), y, reduction="none")


def directions(k: int, seed: int) -> Tensor:
    """The clusters' true parameters: orthogonal, of norm NORM."""
    square, _ = torch.linalg.qr(torch.randn(DIMENSION, DIMENSION, generator=generator(seed, "theta-star")))
    found: Tensor = NORM * square[:, :k].t().contiguous()
    return found


@lru_cache(1)
def shrunk() -> float:
    """The regularised population risk is least at c theta_true: for x ~ N(0, I) c solves, with z ~ N(0, 1),

    E[z (s(c r z) - s(r z))] + L2 c r = 0, where s is the logistic function and r = ||theta_true||.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()

    def slope(c: float) -> float:
        gap = 1 / (1 + np.exp(-c * NORM * nodes)) - 1 / (1 + np.exp(-NORM * nodes))
        return float((weights * nodes * gap).sum()) + L2 * c * NORM

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2


def population(base: Base, true: Tensor, seed: int) -> Federation:
    """Clients with x ~ N(0, I) and y = 1 with probability s(<x, theta_true>)."""
    n, cluster = 2 * ROUNDS * base.n, np.arange(base.m) * base.k // base.m
    x = torch.randn(base.m, n, DIMENSION, generator=generator(seed, "train-x"))
    chance = torch.einsum("mnd,md->mn", x, true[torch.from_numpy(cluster)]).sigmoid()
    y = torch.bernoulli(chance, generator=generator(seed, "train-y"))
    offsets = np.arange(base.m + 1, dtype=np.int64) * n
    ids = tuple(str(i) for i in range(base.m))
    return Federation(Clients(x.flatten(0, 1), y.flatten(), offsets, ids, cluster.astype(np.int64)))


def derived(lines: list[Line]) -> list[Line]:
    """Exponents of the floor."""
    return exponents(lines, "floor", THEOREM, number)


EXPERIMENTS = {
    "theory-convex": Experiment(
        name="theory-convex",
        title="Theorem 2: strongly convex case (regularised logistic regression), step 1/L, fresh samples",
        full=Scale(dict.fromkeys(SETTINGS, ("ifca-plain",)), 10),
        quick=Scale(dict.fromkeys(QUICK, ("ifca-plain",)), 4),
        run=run,
        metrics=("floor", "contraction", "contraction_bound"),
        about="Plain IFCA, which the theorem is about, from models (1/2 - alpha) sqrt(lambda/L) Delta from "
        f"theta*, alpha = {ALPHA}; d = {DIMENSION}, l2 = {L2}, clusters' true parameters orthogonal and of "
        f"norm {NORM:g}; "
        f"2T = {2 * ROUNDS} disjoint parts of n' samples. Where nothing else is said m = 80, n' = 80, "
        "p = 1/2. Distances are to the minimisers of the population risks, known by quadrature. "
        "The theorem bounds the factor of a round by 1 - p lambda/(8L).",
        about_quick="p is not varied, 4 seeds",
        deviations=("D27", "D34"),
        derived=derived,
    )
}
