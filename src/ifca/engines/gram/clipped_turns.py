"""Clients' changes clipped for differential privacy on the fast path: no first layer is formed for it.

A first layer changes by gamma S'X and gamma 1'S, whose squares add up to gamma^2 tr(S'GS) with the Gram
matrix G = X X' + 1 1' that the steps have used.
"""

from __future__ import annotations

from torch import Tensor

from ifca.core.recipe import Recipe
from ifca.core.types import Params
from ifca.engines.gram.first_layers import Turn
from ifca.engines.gram.gram_steps import Gram
from ifca.methods.private_sum import clip_factor


def clipped(recipe: Recipe, theta: Params, turn: Turn, g: Gram) -> Turn:
    """The same turns with changes of length C at most."""
    factor = clip_factor(recipe, lengths(theta, turn, g))  # [b]
    near = factor.to(turn.s.dtype)

    def wide(value: Tensor) -> Tensor:
        return near.reshape(-1, *[1] * (value.dim() - 1))

    rest = {}
    for name, value in turn.rest.items():
        at = 0 if turn.step is None else theta[name][turn.identity]
        rest[name] = at + wide(value) * (value - at)
    return turn._replace(s=turn.s * wide(turn.s), rest=rest, clipped=(factor < 1).cpu())


def lengths(theta: Params, turn: Turn, g: Gram) -> Tensor:
    """Of each client's change, over all parameters: [b] float64."""
    step = 1.0 if turn.step is None else turn.step
    squares = step**2 * g.squares(turn.s)
    for name, value in turn.rest.items():
        moved = value if turn.step is None else value - theta[name][turn.identity]
        squares = squares + moved.double().flatten(1).square().sum(1)
    return squares.sqrt()
