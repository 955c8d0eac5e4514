"""Single updates on the fast path: first layers are formed block by block, when a rule asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ifca.core.replies import Part
from ifca.core.types import FirstLayer, Params
from ifca.engines.gram.chunks import Chunk
from ifca.engines.updates import BlockedUpdates


class Turn(NamedTuple):
    """What some clients did, before any first layer is formed. Valid until the next turn is asked for."""

    identity: Tensor  # [b]
    losses: Tensor  # [b, k]
    data: Chunk
    s: Tensor  # [b, n, h]
    rest: Params  # [b, ...] their other layers, or the gradients by them
    step: float | None  # of local steps, W_i = W_j - step S'X; None: the gradient S'X itself
    clipped: Tensor | None = None  # [b] whose change was too long for differential privacy; None: not asked


Again = Callable[[Tensor], Iterator[tuple[Tensor, Turn]]]
"""rows [r] -> the turns of these participants once more, with their places among the r."""
Load = Callable[[Tensor], Chunk]
"""rows [r] -> the data of these participants, until the next ones are asked for."""


class FirstLayers:
    """The updates of a round's p participants; turns are repeated where forming needs what was not kept."""

    def __init__(
        self, first: FirstLayer, theta: Params, p: int, budget: int, again: Again, load: Load
    ) -> None:
        self.first, self.theta, self.p, self.again, self.load = first, theta, p, again, load
        self.like = theta[first.weight]
        self.most = max(1, budget // self.like.element_size())
        own = (first.weight, first.bias)
        sizes = {name: value.shape[1:].numel() for name, value in theta.items() if name not in own}
        self.rest = {name: self.like.new_empty(p, size) for name, size in sizes.items()}
        self.bias = self.like.new_empty(p, self.like.shape[1])
        self.turns: list[tuple[Tensor, Tensor, Tensor, float | None]] | None = []  # None: they do not fit
        self.held = 0

    def add(self, place: Tensor, turn: Turn) -> None:
        """The turns of some participants; small layers are kept, first ones as S, because X is there."""
        there = place.to(self.like.device)
        for name, value in turn.rest.items():
            self.rest[name][there] = value.flatten(1)
        if self.first.bias is not None:
            moved = turn.s.sum(1)
            at = self.theta[self.first.bias][turn.identity]
            self.bias[there] = moved if turn.step is None else at - turn.step * moved
        self.held += turn.s.numel()
        if self.turns is not None and self.held <= self.most:
            self.turns.append((place, turn.identity, turn.s.clone(), turn.step))
        else:
            self.turns = None

    def updates(self) -> BlockedUpdates:
        """What rules and methods are given."""
        shapes = {name: value.shape[1:] for name, value in self.theta.items()}
        return BlockedUpdates(shapes, torch.arange(self.p), self._form, self.like, self.most)

    def _form(self, rows: Tensor, parts: list[Part]) -> Iterator[tuple[Tensor, list[Tensor]]]:
        of_first = any(part.name == self.first.weight for part in parts)
        for at, turn in self._repeated(rows) if of_first else [(torch.arange(len(rows)), None)]:
            there = rows[at].to(self.like.device)
            yield at, [self._part(part, there, turn) for part in parts]

    def _repeated(self, rows: Tensor) -> Iterator[tuple[Tensor, Turn]]:
        """The turns of some participants: as they were kept, or taken again."""
        if self.turns is None:
            yield from self.again(rows)
            return
        where = torch.full((self.p,), -1)
        where[rows] = torch.arange(len(rows))
        for place, identity, s, step in self.turns:
            some = torch.nonzero(where[place] >= 0)[:, 0]
            if len(some):
                there, data = some.to(self.like.device), self.load(place[some])
                s = s[there, : data.x.shape[1]]  # without the largest there is less padding
                yield where[place[some]], Turn(identity[there], s.new_empty(0), data, s, {}, step)

    def _part(self, part: Part, rows: Tensor, turn: Turn | None) -> Tensor:
        """The coordinates of one part for some participants: [r, width]."""
        name, start, width = part
        if turn is None or name != self.first.weight:
            held = self.bias if name == self.first.bias else self.rest[name]
            return held[rows, start : start + width]
        d = turn.data.x.shape[2]
        units = slice(start // d, -(-(start + width) // d))  # hidden units that the part touches
        formed = torch.bmm(turn.s[:, :, units].transpose(1, 2), turn.data.x) * turn.data.scale
        if turn.step is not None:
            formed = self.theta[name][turn.identity][:, units] - turn.step * formed
        return formed.flatten(1)[:, start - units.start * d :][:, :width]
