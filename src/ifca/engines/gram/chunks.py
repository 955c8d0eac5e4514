"""Chunks of clients for the fast path: their data as floats, their Gram matrices, their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.data import Clients
from ifca.engines.gram.gram_steps import Gram, Scratch, has_factors

CACHE_ROWS = 2000  # samples of a chunk on a CPU: what it works on stays in the cache
SPARE = {"cpu": 2**8, "cuda": 2**14}  # rows of padding that take as long as another chunk, measured


def spare_rows(device: torch.device) -> int:
    """Rows of padding that a bucket of clients may have."""
    return SPARE.get(device.type, SPARE["cuda"])


class Chunk(NamedTuple):
    """Some clients side by side, features flattened; pixels as whole numbers, to be multiplied by scale."""

    x: Tensor  # [b, n, d]
    y: Tensor  # [b, n, ...]
    weight: Tensor  # [b, n] 1 / size of the client, 0 for padding
    scale: float

    def of(self, some: Tensor) -> Chunk:
        """Some of the clients."""
        return Chunk(self.x[some], self.y[some], self.weight[some], self.scale)


def load(clients: Clients, who: NDArray[np.int64], width: int, like: Tensor, scratch: Scratch) -> Chunk:
    """The data of some clients, each padded to a width, in the precision and on the device of like.

    Valid until the next load.
    """
    rows, x = clients.places(who, width), clients.x.flatten(1)
    shape = (len(who), width, x.shape[1])
    if isinstance(rows, slice):
        x, y = x[rows], clients.y[rows]
    else:
        rows = rows.to(x.device)
        x = torch.index_select(x, 0, rows, out=scratch.take("rows", (len(rows), shape[2]), x))
        y = clients.y[rows]
    floats = x.view(shape)
    if (x.dtype, x.device) != (like.dtype, like.device):
        floats = scratch.take("x", shape, like).copy_(floats)
    y = y.view(*shape[:2], *y.shape[1:])
    sizes = torch.from_numpy(clients.sizes[who]).to(like.device)[:, None]
    weight = (torch.arange(width, device=like.device) < sizes).to(like.dtype) / sizes.clamp(min=1)
    y = y.to(like) if y.is_floating_point() else y.to(like.device)
    return Chunk(floats, y, weight.to(like.dtype), 1 / 255 if x.dtype == torch.uint8 else 1.0)


class Grams:
    """G = X X' + 1 1' of each client, remembered for the run as far as it fits, bucket by bucket."""

    def __init__(self, width: NDArray[np.int64], *, bias: bool, budget: int) -> None:
        """width: [m] what each client is padded to."""
        self._bias = bias
        self._all: dict[int, Tensor] = {}  # by width: [clients of it, width, width]
        self._row, self._count = np.zeros(len(width), np.int64), dict[int, int]()
        self._known = np.zeros(len(width), np.bool_)
        found, count = np.unique(width, return_counts=True)
        fits = np.cumsum(found**2 * count) * 8 <= budget  # the small ones first
        for wide, many in zip(found[fits].tolist(), count[fits].tolist(), strict=True):
            self._row[width == wide], self._count[wide] = np.arange(many), many

    def of(self, who: NDArray[np.int64], data: Chunk) -> Gram:
        """Of the clients of a chunk."""
        return Gram(self._whole(who, data), data.x, data.scale, self._bias)

    def factors(self, data: Chunk) -> Gram:
        """The same as its factors alone, where few products with it are needed."""
        return Gram(None, data.x, data.scale, self._bias)

    def _whole(self, who: NDArray[np.int64], data: Chunk) -> Tensor | None:
        """[b, n, n]."""
        width = data.x.shape[1]
        if has_factors(*data.x.shape[1:]):
            return None
        if width not in self._count:
            return self._made(data)
        if width not in self._all:
            self._all[width] = data.x.new_empty(self._count[width], width, width)
        rows = self._row[who]
        near = slice(int(rows[0]), int(rows[-1]) + 1) if (np.diff(rows) == 1).all() else None
        place = torch.from_numpy(rows).to(data.x.device) if near is None else near
        if not self._known[who].all():
            self._all[width][place] = self._made(data)
            self._known[who] = True
        return self._all[width][place]

    def _made(self, data: Chunk) -> Tensor:
        g = torch.bmm(data.x, data.x.transpose(1, 2)).mul_(data.scale**2)
        return g.add_(1) if self._bias else g


def places(
    width: Tensor, sizes: Tensor, asked: Tensor, known: Tensor, fitting: Callable[[int], int]
) -> Iterator[Tensor]:
    """Places of participants, a chunk at a time; clients of one width together. All tensors: [p].

    First those who are sent all models, then those who are sent one, model by model. fitting: how many
    clients of a width make a chunk.
    """
    largest = torch.argsort(sizes, stable=True, descending=True)
    for wanted, key in ((asked, torch.zeros_like(known)), (~asked, known)):
        place = largest[wanted[largest]]
        place = place[torch.argsort(key[place], stable=True)]
        place = place[torch.argsort(width[place], stable=True, descending=True)]
        counts = torch.unique_consecutive(width[place], return_counts=True)[1]
        for bucket in torch.split(place, counts.tolist()):
            yield from torch.split(bucket, fitting(int(width[bucket[0]])))
