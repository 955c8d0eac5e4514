"""Single updates for rules that need them: kept where they fit into memory, else formed block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ifca.core.averages import fold
from ifca.core.replies import Part, Updates
from ifca.core.types import ClusterSum, Params

Form = Callable[[Tensor, list[Part]], Iterator[tuple[Tensor, list[Tensor]]]]
"""rows [r], parts -> for some rows at a time their places among the r, and the values of each part."""
Again = Callable[[Tensor], Iterator[tuple[Tensor, Params]]]
"""rows [r] -> the turns of these participants once more: places among the r, updates [c, ...]."""


@dataclass(frozen=True)
class BlockedUpdates:
    """The updates of some participants; no more than some numbers of them are in memory at once."""

    shapes: dict[str, torch.Size]  # of one update, by parameter
    rows: Tensor  # [p] which participants
    form: Form
    like: Tensor  # type and device of the values
    most: int  # numbers of a block

    def of(self, rows: Tensor) -> BlockedUpdates:
        """Those of some participants."""
        return replace(self, rows=self.rows[rows])

    def layout(self, names: frozenset[str]) -> list[Part]:
        """Blocks of at most so many coordinates that all rows fit."""
        width = max(1, self.most // max(1, len(self.rows)))
        return [
            Part(name, start, min(width, shape.numel() - start))
            for name, shape in self.shapes.items()
            if name in names
            for start in range(0, shape.numel(), width)
        ]

    def blocks(self, names: frozenset[str]) -> Iterator[Tensor]:
        """The values of each block; small blocks are formed together."""
        room, some = max(1, self.most // max(1, len(self.rows))), list[Part]()
        for part in self.layout(names):
            if sum(other.width for other in some) + part.width > room:
                yield from self._formed(some)
                some = []
            some.append(part)
        yield from self._formed(some)

    def _formed(self, parts: list[Part]) -> list[Tensor]:
        values = [self.like.new_empty(len(self.rows), part.width) for part in parts]
        for at, formed in self.form(self.rows, parts) if parts else ():
            for whole, some in zip(values, formed, strict=True):
                whole[at.to(whole.device)] = some
        return values


class Kept:
    """The updates of a round's p participants: kept as they come, or made again when they are asked for."""

    def __init__(self, theta: Params, p: int, budget: int, again: Again) -> None:
        """theta: [k, ...] for the shapes; budget: bytes; again: takes turns once more."""
        self.shapes = {name: value.shape[1:] for name, value in theta.items()}
        self.like = next(iter(theta.values()))
        self.p, self.most, self.again = p, max(1, budget // self.like.element_size()), again
        fits = p * sum(shape.numel() for shape in self.shapes.values()) <= self.most
        self.held = (
            {name: self.like.new_empty(p, shape.numel()) for name, shape in self.shapes.items()}
            if fits
            else None
        )

    def add(self, places: Tensor, update: Params) -> None:
        """The updates of some participants. places: [c] among the p; update: [c, ...]."""
        if self.held is not None:
            for name, value in update.items():
                self.held[name][places.to(value.device)] = _flat(value)

    def updates(self) -> BlockedUpdates:
        """What rules and methods are given."""
        return BlockedUpdates(self.shapes, torch.arange(self.p), self._form, self.like, self.most)

    def _form(self, rows: Tensor, parts: list[Part]) -> Iterator[tuple[Tensor, list[Tensor]]]:
        if self.held is not None:
            held, there = self.held, rows.to(self.like.device)
            yield (
                torch.arange(len(rows)),
                [held[name][there, start : start + width] for name, start, width in parts],
            )
            return
        for at, update in self.again(rows):
            yield at, [_flat(update[name])[:, start : start + width] for name, start, width in parts]


def _flat(value: Tensor) -> Tensor:
    """[c, ...] -> [c, numbers]; a parameter may be one number."""
    return value.reshape(len(value), -1)


def add_updates(total: ClusterSum, updates: Updates, own: Tensor, weight: Tensor) -> None:
    """Add sum over i of s_ij w_i update_i, block by block. own, weight: [p]."""
    names, own = frozenset(total.total), own.to(total.weight.device)
    for part, values in zip(updates.layout(names), updates.blocks(names), strict=True):
        flat = total.total[part.name].view(len(total.weight), -1)[:, part.start : part.start + part.width]
        fold(ClusterSum({part.name: flat}, torch.zeros_like(total.weight)), own, {part.name: values}, weight)
    fold(total, own, {}, weight)
