"""The steps of LocalUpdate: gradient descent, momentum or Adam, weight decay and a proximal term.

Each is torch.optim's step of the same name as a pure function, so that engines can map it over clients. What
momentum and Adam remember is made anew in every round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ifca.core.recipe import ClientOptimizer, Recipe
from ifca.core.types import Params

BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam, as in torch.optim


class Moments(NamedTuple):
    """What momentum and Adam remember from step to step: vectors over all parameters, empty where unused."""

    first: Tensor  # running sum (momentum) or mean (Adam) of gradients
    second: Tensor  # Adam: running mean of their squares
    taken: Tensor  # [] steps so far


def flat(theta: Params) -> Tensor:
    """All parameters of one model as one vector: a step is a few operations for any number of layers."""
    return torch.cat([value.reshape(-1) for value in theta.values()])


def shaped(vector: Tensor, like: Params) -> Params:
    """The inverse of flat."""
    parts = torch.split(vector, [value.numel() for value in like.values()])
    return {name: part.view_as(value) for (name, value), part in zip(like.items(), parts, strict=True)}


@dataclass(frozen=True)
class Optimiser:
    """How a client takes a step; the recipe's fields of the same names."""

    optimizer: ClientOptimizer = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    proximal: float = 0.0

    @property
    def plain(self) -> bool:
        """Whether a step is theta - gamma g, the only one that kernels and exact mini-batches take."""
        return self.optimizer == "sgd" and not self.weight_decay and not self.proximal

    @property
    def sums(self) -> bool:
        """Whether what the steps change is a sum of gradients, whatever the model was before."""
        return self.optimizer in ("sgd", "momentum") and not self.weight_decay

    def begin(self, theta: Params) -> Moments:
        """Nothing is remembered before the first step."""
        like, size = next(iter(theta.values())), sum(value.numel() for value in theta.values())
        first = like.new_zeros(0 if self.optimizer == "sgd" else size)
        second = like.new_zeros(size if self.optimizer in ("adam", "adamw") else 0)
        return Moments(first, second, torch.zeros((), dtype=torch.float64, device=like.device))

    def step(
        self, theta: Tensor, slope: Tensor, size: float | Tensor, moments: Moments, sent: Params
    ) -> tuple[Tensor, Moments]:
        """One step of size gamma from the vector theta along the gradient slope.

        sent: the model that the round began with.
        """
        if self.proximal:  # of mu/2 ||theta - theta_sent||^2
            slope = slope + self.proximal * (theta - flat(sent))
        if self.optimizer == "adamw":
            theta = theta - size * self.weight_decay * theta
        elif self.weight_decay:
            slope = slope + self.weight_decay * theta
        if self.optimizer in ("adam", "adamw"):
            return self._adam(theta, slope, size, moments)
        if self.optimizer == "momentum":
            slope = self.momentum * moments.first + slope
            moments = moments._replace(first=slope)
        return theta - size * slope, moments

    def _adam(
        self, theta: Tensor, slope: Tensor, size: float | Tensor, moments: Moments
    ) -> tuple[Tensor, Moments]:
        taken, (b1, b2) = moments.taken + 1, BETAS
        first = b1 * moments.first + (1 - b1) * slope
        second = b2 * moments.second + (1 - b2) * slope * slope
        # Both means begin at zero; these undo it. In double: 1 - 0.999 has four digits in single precision.
        undo_first, undo_second = ((1 / (1 - b**taken)).to(theta.dtype) for b in BETAS)
        moved = theta - size * undo_first * first / ((second * undo_second).sqrt() + EPSILON)
        return moved, Moments(first, second, taken)


PLAIN = Optimiser()


def optimiser_of(recipe: Recipe) -> Optimiser:
    """The client's optimiser that a recipe names."""
    return Optimiser(recipe.optimizer, recipe.momentum, recipe.weight_decay, recipe.proximal)
