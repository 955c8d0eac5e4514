"""Where rounds of the fused path are computed: memory that stays where it is, and the CUDA graphs over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifca.engines.cuda.fused_rows import SMALL, FusedRows, Tiles
from ifca.engines.cuda.fused_sums import Judged, Moved, Turns

PLACES = 8  # that are kept
Said = tuple[Tensor, Tensor, Tensor]
"""What the identity pass says, in main memory: identities, losses, the rows of each cluster."""


class Place:
    """For rounds of about so many clients, rows and tiles."""

    def __init__(self, turns: Turns, *, every: bool, known: Tensor | None = None) -> None:
        """every: they are everyone. known: the model of each; its clients stand one after the other."""
        self.turns, self.every, self.buffers = turns, every, dict[str, Tensor]()
        self.warm = False  # whether the kernels that it needs are compiled
        self.captured: Captured | None = None
        self.known, self.order = known, None if known is None else known.argsort(stable=True)
        self.ends: list[int] = []  # of each cluster's rows
        self._sent: Tensor | None = None
        self._ordered: tuple[Tensor, Tensor] | None = None

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer that stays where it is, as CUDA graphs need."""
        if name not in self.buffers:
            self.buffers[name] = torch.empty(shape, dtype=dtype, device=self.turns.a.device)
        return self.buffers[name]

    def send(self, known: Tensor) -> None:
        """The one model that each participant is sent, or -1."""
        if self._sent is None or not torch.equal(self._sent, known):
            self.turns.known[: len(known)].copy_(known if self.order is None else known[self.order])
            self._sent = known.clone()

    def listed(self, found: Tensor) -> Tensor:
        """What was found of participants [p, ...], in the order in which they are listed."""
        if self.order is None:
            return found
        return torch.empty_like(found).index_copy_(0, self.order, found)

    def in_order(self, data: FusedRows, judged: Judged, identity: Tensor) -> Tensor:
        """X by cluster; of everybody it is gathered anew only where somebody has changed its cluster."""
        if self.order is not None:
            return data.parts(self.turns.x, None)
        if self._ordered is not None and torch.equal(self._ordered[0], identity):
            return self._ordered[1]
        self._ordered = None
        x = data.parts(self.turns.x, judged.order)
        if self.every:
            self._ordered = identity, x
        return x


class Places:
    """Those that were used last, by who takes part."""

    def __init__(self, rows: FusedRows, device: torch.device, *, weighted: bool, settles: bool) -> None:
        """weighted: by samples. settles: clients may be sent one model for long (Recipe.stable_after)."""
        self.rows, self.device, self.weighted, self.settles = rows, device, weighted, settles
        self.kept: dict[tuple[int, ...], Place] = {}
        self._known: Tensor | None = None  # of everybody, in the last round

    def of(self, who: Tensor, known: Tensor, k: int) -> Place:
        """For a round of some clients, in rising order, and k models."""
        every = len(who) == len(self.rows.sizes)
        before, self._known = self._known, known.clone() if self.settles and every else None
        if k > 1 and before is not None and bool((known >= 0).all()) and torch.equal(before, known):
            return self._settled(known, k)
        if every and (0,) in self.kept:
            return self.kept[0,]
        tiles = self.rows.tiles(who.numpy(), exact=every)
        small = _small(tiles)
        key = (0,) if every else (len(who), len(tiles.whose), len(tiles.client), int(small))
        if key not in self.kept:
            turns = self._room(tiles, small, k, copied=not every)
            self._keep(key, Place(turns, every=every))
        place = self.kept[key]
        if not every:
            self._put(place.turns, tiles, who)
        return place

    def _settled(self, known: Tensor, k: int) -> Place:
        """For everybody, where nobody changes: a cluster's clients stand together and judge its model."""
        place = self.kept.get((1,))
        if place is None or place.known is None or not torch.equal(place.known, known):
            self.kept.pop((1,), None)  # before there is another
            order = known.argsort(stable=True)
            tiles = self.rows.tiles(order.numpy(), exact=True)
            turns = self._room(tiles, _small(tiles), k, copied=True)
            self._put(turns, tiles, order)
            place = Place(turns, every=True, known=known.clone())
            rows = np.bincount(known.numpy(), weights=self.rows.sizes, minlength=k)
            place.ends = rows.cumsum().astype(int).tolist()
            self._keep((1,), place)
        return place

    def _keep(self, key: tuple[int, ...], place: Place) -> None:
        while len(self.kept) >= PLACES:
            self.kept.pop(next(iter(self.kept)))
        self.kept[key] = place

    def _room(self, tiles: Tiles, small: bool, k: int, *, copied: bool) -> Turns:
        """For turns on such tiles. copied: their rows are put there."""
        rows, count = len(tiles.whose), len(tiles.size)
        here = Tiles(*(part.to(self.device) for part in tiles))
        x, y = self.rows.x, self.rows.y
        if copied:
            x, y = x.new_zeros(rows, x.shape[1]), y.new_zeros(rows)
        scale, a = torch.zeros(count, device=self.device), torch.zeros(count, device=self.device)
        # nobody comes after everybody else in cluster order
        turns = Turns(x, y, here, scale, a, torch.full((count,), k - 1, device=self.device), small)
        self._fill(turns)
        return turns

    def _put(self, turns: Turns, tiles: Tiles, who: Tensor) -> None:
        """The rows of some clients, and which are whose."""
        index = self.rows.index(who.numpy())
        torch.index_select(self.rows.x, 0, index, out=turns.x[: len(index)])
        torch.index_select(self.rows.y, 0, index, out=turns.y[: len(index)])
        for mine, theirs in zip(turns.tiles, tiles, strict=True):
            mine.copy_(theirs)
        self._fill(turns)

    def _fill(self, turns: Turns) -> None:
        """What the clients on tiles that are in place weigh, and their Gram matrices' scales."""
        torch.index_select(self.rows.scale, 0, turns.tiles.place, out=turns.scale)
        if self.weighted:
            turns.a.copy_(turns.tiles.size)
        else:
            turns.a.fill_(1)
        turns.a[-1] = 0


class Captured:
    """The identity pass and the steps as graphs: the steps do not wait for the host."""

    def __init__(self, judge: Callable[[], Judged], steps: Callable[[Judged], Moved]) -> None:
        torch.cuda.synchronize()
        self._first, self._second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        self._heard: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.graph(self._first):
            self.judged = judge()
        self._said = [torch.empty_like(part, device="cpu", pin_memory=True) for part in told(self.judged)]
        with torch.cuda.graph(self._second):
            self.moved = steps(self.judged)

    def replay(self) -> Said:
        """Start a round, and return what the identity pass says as soon as it does."""
        self._first.replay()
        for mine, part in zip(self._said, told(self.judged), strict=True):
            mine.copy_(part, non_blocking=True)
        self._heard.record()
        self._second.replay()
        self._heard.synchronize()
        identity, losses, members = (part.clone() for part in self._said)
        return identity, losses, members


def told(judged: Judged) -> Said:
    """What the host is told, on the GPU still."""
    return judged.identity, judged.losses, judged.members


def _small(tiles: Tiles) -> bool:
    return int(tiles.size.max()) <= SMALL
