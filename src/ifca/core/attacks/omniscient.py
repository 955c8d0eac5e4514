"""Attacks of clients who work together and know the honest updates of the round."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ifca.core.attacks.attack import Seen


def inner_product(seen: Seen) -> Iterator[Tensor]:
    """-strength times the honest mean: the mean of all may point away from it."""
    for block in seen.blocks():
        yield -seen.factor * block.honest.mean(0)


def alie(seen: Seen) -> Iterator[Tensor]:
    """The mean plus z std of the honest, in every coordinate: within the spread, so that nothing stands out.

    z = strength; by default the largest for which enough honest clients are farther out to be a majority
    with the attackers: z = Phi^-1((h - s) / h), s = floor(n / 2) + 1 - a of the h honest clients.
    """
    z = seen.strength
    for block in seen.blocks():
        if z is None:
            z = supported(len(block.honest), len(block.own))
        yield block.honest.mean(0) + z * block.honest.std(0, correction=0)


def supported(h: int, a: int) -> float:
    """The z of alie for h honest clients and a attackers; never below 0, and one honest client is beyond."""
    s = max(1, (h + a) // 2 + 1 - a)
    return max(0.0, float(torch.special.ndtri(torch.tensor((h - s) / h, dtype=torch.float64))))


def min_max(seen: Seen) -> Iterator[Tensor]:
    """The mean less g std of the honest, with the largest g for which the distance to every honest change is
    at most the largest distance of two honest ones.

    With c_i = honest change i less the mean: |c_i + g std|^2 <= D for all i, a quadratic in g.
    """
    squares = along = gram = torch.zeros(())  # |std|^2, <std, c_i> [h], <c_i, c_j> [h, h]
    for block in seen.blocks():
        c, std = block.honest - block.honest.mean(0), block.honest.std(0, correction=0)
        squares = squares.to(c) + std @ std
        along, gram = along.to(c) + c @ std, gram.to(c) + c @ c.T
    own = torch.diagonal(gram)
    farthest = (own[:, None] + own[None, :] - 2 * gram).max()  # D
    left = along.square() - squares * (own - farthest)
    g = ((left.clamp(min=0).sqrt() - along) / squares).min() if float(squares) > 0 else squares
    for block in seen.blocks():
        yield block.honest.mean(0) - g * block.honest.std(0, correction=0)


def mimic(seen: Seen) -> Iterator[Tensor]:
    """A copy of one honest change, which then counts a + 1 times: the one farthest from the honest mean."""
    far = torch.zeros(())
    for block in seen.blocks():
        far = far + (block.honest - block.honest.mean(0)).square().sum(1).cpu()
    one = int(far.argmax())
    for block in seen.blocks():
        yield block.honest[one]
