"""Client-level differential privacy of a round: clipped changes, noise on their sums and counts by cluster.

A participant i of cluster j adds to a round one vector, Delta_i clipped to the length C: its coordinates of
cluster j's own parameters to the sum S_j, those of shared parameters to a sum of all; and 1 to the count n_j.
To remove the client takes away one vector of length C and a 1, in whichever blocks they are. Counted in
units of C / 3, the counts are coordinates of the same vector: all S_j, the shared sum and all n_j together
change by at most C sqrt(1 + 1/9), the sensitivity of ONE Gaussian mechanism, not of k. Its noise has the
standard deviation sigma C sqrt(1 + 1/9) on sums and 3 sigma sqrt(1 + 1/9) on counts, sigma the noise
multiplier: counts cost sums 5% more noise.
"""

from __future__ import annotations

import hashlib
import math
from typing import NamedTuple

import torch
from torch import Tensor

from ifca.core.client import change
from ifca.core.random import generator
from ifca.core.recipe import Recipe
from ifca.core.types import ClientReply, ClusterState, ClusterSum, Params

COUNT = 3.0  # a count is noised so many times as much as a sum in units of C
LEAST = 2.0  # standard deviations of a count's noise: a cluster with a smaller noisy count keeps its model
ONE = math.sqrt(1 + COUNT**-2)  # the sensitivity, in units of C


class Noise(NamedTuple):
    """The noise of a run."""

    multiplier: float  # sigma
    clip: float  # C

    @property
    def of_sums(self) -> float:
        """Standard deviation of the noise on each coordinate of a sum."""
        return self.multiplier * self.clip * ONE

    @property
    def of_counts(self) -> float:
        """Standard deviation of the noise on a count."""
        return self.multiplier * COUNT * ONE

    @property
    def least(self) -> float:
        """The least noisy count with which a model moves."""
        return max(0.5, LEAST * self.of_counts)


def clipped(recipe: Recipe, theta: Params, reply: ClientReply) -> tuple[Params, Tensor]:
    """The updates of c clients with changes of length C at most [c, ...], and which were longer [c]."""
    moved = {name: value.double() for name, value in change(recipe, theta, reply).items()}
    square = sum((value.flatten(1).square().sum(1) for value in moved.values()), torch.zeros(()))
    factor = clip_factor(recipe, square.sqrt())
    short = {name: value * factor.reshape(-1, *[1] * (value.dim() - 1)) for name, value in moved.items()}
    if recipe.option == "model":
        short = {name: theta[name][reply.identity].double() + value for name, value in short.items()}
    return short, (factor < 1).cpu()


def clip_factor(recipe: Recipe, length: Tensor) -> Tensor:
    """What changes of these lengths [c] are multiplied by: 1 where one is short enough."""
    return recipe.dp_clip / length.clamp(min=recipe.dp_clip)


def noised(
    recipe: Recipe,
    noise: Noise,
    state: ClusterState,
    sums: ClusterSum,
    shared: frozenset[str],
    secret: int | None = None,
    seed: int | None = None,
) -> ClusterSum:
    """What the server may use: noisy sums and counts, as averages of core/averages.py divide them.

    sums: of clipped updates. A cluster with a noisy count below the least one has weight 0 and keeps its
    model. seed: what the noise is drawn from in place of the recipe's. secret: as the seed; then it is
    another one for other sums, too, because the difference of two releases with the same noise has none.
    """
    rng = generator(*_source(recipe.seed if seed is None else seed, state, sums, secret))
    counts = sums.weight + noise.of_counts * _normal(sums.weight, rng)
    weight = torch.where(counts >= noise.least, counts, 0)
    everyone = counts.sum().maximum(weight.sum())  # noise below zero elsewhere takes nobody away from these
    total = dict[str, Tensor]()
    for name, value in sorted(sums.total.items()):  # a state that was read has another order
        theta = state.theta[name].double()
        rows = [-1, *[1] * (value.dim() - 1)]
        if recipe.option == "model":  # what models were moved by
            value = value - sums.weight.reshape(rows) * theta
        drawn = noise.of_sums * _normal(value[0] if name in shared else value, rng)
        own = weight.reshape(rows)
        if name in shared:  # the mean over all participants, at every place as often as its weight says
            mean = torch.where(everyone >= noise.least, (value.sum(0) + drawn) / everyone, 0).expand_as(value)
            value = own * mean
        elif recipe.option == "model":
            value = torch.where(own > 0, value + drawn, 0)
        else:  # option I divides by all participants, those of clusters that keep their model among them
            value = torch.where(own > 0, (value + drawn) * weight.sum() / everyone, 0)
        total[name] = value + own * theta if recipe.option == "model" else value
    return ClusterSum(total, weight)


def _normal(like: Tensor, rng: torch.Generator) -> Tensor:
    """Standard normal numbers, the same on every device."""
    return torch.randn(like.shape, generator=rng, dtype=torch.float64).to(like.device)


def _source(
    seed: int, state: ClusterState, sums: ClusterSum, secret: int | None
) -> tuple[int, str, int, int]:
    """What the noise of a round is drawn from."""
    if secret is None:
        return seed, "privacy", state.round, 0
    digest = hashlib.blake2b(digest_size=8)
    for value in (sums.weight, *(sums.total[name] for name in sorted(sums.total))):
        digest.update(value.cpu().numpy().tobytes())
    return secret, "privacy", state.round, int.from_bytes(digest.digest(), "little")
