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
    """What momentum and Adam remember from step to step."""

    first: Params  # running sum (momentum) or mean (Adam) of gradients; of plain steps empty
    second: Params  # Adam: running mean of their squares
    taken: Tensor  # [] steps so far


@dataclass(frozen=True)
class Optimiser:
    """How a client takes a step; the recipe's fields of the same names."""

    optimizer: ClientOptimizer = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    proximal: float = 0.0

    @property
    def plain(self) -> bool:
        """Whether a step is theta - gamma g, which is what exact fast paths compute."""
        return self.optimizer == "sgd" and not self.weight_decay and not self.proximal

    def begin(self, theta: Params) -> Moments:
        """Nothing is remembered before the first step."""
        like, kept = next(iter(theta.values())), {} if self.optimizer == "sgd" else theta
        first = {name: torch.zeros_like(value) for name, value in kept.items()}
        second = first if self.optimizer in ("adam", "adamw") else {}
        return Moments(first, second, torch.zeros((), dtype=torch.float64, device=like.device))

    def step(
        self, theta: Params, slope: Params, size: float | Tensor, moments: Moments, sent: Params
    ) -> tuple[Params, Moments]:
        """One step of size gamma along the gradient slope. sent: the model that the round began with."""
        if self.proximal:  # of mu/2 ||theta - theta_sent||^2
            slope = {name: g + self.proximal * (theta[name] - sent[name]) for name, g in slope.items()}
        if self.optimizer == "adamw":
            theta = {name: value - size * self.weight_decay * value for name, value in theta.items()}
        elif self.weight_decay:
            slope = {name: g + self.weight_decay * theta[name] for name, g in slope.items()}
        if self.optimizer in ("adam", "adamw"):
            return self._adam(theta, slope, size, moments)
        if self.optimizer == "momentum":
            slope = {name: self.momentum * moments.first[name] + g for name, g in slope.items()}
            moments = moments._replace(first=slope)
        return {name: value - size * slope[name] for name, value in theta.items()}, moments

    def _adam(
        self, theta: Params, slope: Params, size: float | Tensor, moments: Moments
    ) -> tuple[Params, Moments]:
        taken = moments.taken + 1
        (b1, b2), like = BETAS, next(iter(theta.values()))
        first = {name: b1 * moments.first[name] + (1 - b1) * g for name, g in slope.items()}
        second = {name: b2 * moments.second[name] + (1 - b2) * g * g for name, g in slope.items()}
        # Both means begin at zero; these undo it. In double: 1 - 0.999 has four digits in single precision.
        undo_first, undo_second = ((1 / (1 - b**taken)).to(like.dtype) for b in BETAS)
        moved = {
            name: value - size * undo_first * first[name] / ((second[name] * undo_second).sqrt() + EPSILON)
            for name, value in theta.items()
        }
        return moved, Moments(first, second, taken)


PLAIN = Optimiser()


def optimiser_of(recipe: Recipe) -> Optimiser:
    """The client's optimiser that a recipe names."""
    return Optimiser(recipe.optimizer, recipe.momentum, recipe.weight_decay, recipe.proximal)
