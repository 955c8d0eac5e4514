"""Chunks of clients for the fast path: their data as floats, their Gram matrices, their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.data import Clients
from ifca.engines.gram.gram_steps import Gram, Scratch, has_factors

CACHE_ROWS = 2000  # samples of a chunk on a CPU: what it works on stays in the cache


class Chunk(NamedTuple):
    """Some clients side by side, features flattened; pixels as whole numbers, to be multiplied by scale."""

    x: Tensor  # [b, n, d]
    y: Tensor  # [b, n, ...]
    weight: Tensor  # [b, n] 1 / size of the client, 0 for padding
    scale: float

    def of(self, some: Tensor) -> Chunk:
        """Some of the clients."""
        return Chunk(self.x[some], self.y[some], self.weight[some], self.scale)


def load(clients: Clients, who: NDArray[np.int64], like: Tensor, scratch: Scratch) -> Chunk:
    """The data of some clients in the precision and on the device of like; valid until the next load."""
    x, y, present = clients.side_by_side(who)
    shape = (*present.shape, int(x[0, 0].numel()))
    floats = x.reshape(shape)
    if (x.dtype, x.device) != (like.dtype, like.device):
        floats = scratch.take("x", shape, like).copy_(floats)
    weight = present.to(like)
    y = y.to(like) if y.is_floating_point() else y.to(like.device)
    return Chunk(floats, y, weight / weight.sum(1, keepdim=True), 1 / 255 if x.dtype == torch.uint8 else 1.0)


class Grams:
    """G = X X' + 1 1' of each client, remembered for the run where clients have one size and it fits."""

    def __init__(self, clients: Clients, *, bias: bool, budget: int) -> None:
        self._bias = bias
        self._size = int(clients.sizes.max()) if clients.sizes.min() == clients.sizes.max() else 0
        self._fits = len(clients) * self._size**2 * 8 <= budget
        self._known = torch.zeros(len(clients), dtype=torch.bool)
        self._all: Tensor | None = None  # [m, n, n]

    def of(self, who: NDArray[np.int64], data: Chunk) -> Gram:
        """Of the clients of a chunk."""
        return Gram(self._whole(who, data), data.x, data.scale, self._bias)

    def _whole(self, who: NDArray[np.int64], data: Chunk) -> Tensor | None:
        """[b, n, n]."""
        if has_factors(*data.x.shape[1:]):
            return None
        if not self._size or not self._fits:
            return self._made(data)
        if self._all is None:
            self._all = data.x.new_empty(len(self._known), self._size, self._size)
        index = torch.from_numpy(who)
        if not bool(self._known[index].all()):
            self._all[index.to(data.x.device)] = self._made(data)
            self._known[index] = True
        if bool((index.diff() == 1).all()):
            return self._all[int(index[0]) : int(index[-1]) + 1]
        return self._all[index.to(data.x.device)]

    def _made(self, data: Chunk) -> Tensor:
        g = torch.bmm(data.x, data.x.transpose(1, 2)).mul_(data.scale**2)
        return g.add_(1) if self._bias else g


def places(sizes: Tensor, asked: Tensor, known: Tensor, chunk: int) -> Iterator[Tensor]:
    """Places of participants, a chunk at a time; clients of like size together. All arguments: [p].

    First those who are sent all models, then those who are sent one, model by model.
    """
    by_size = torch.argsort(sizes, stable=True)
    for wanted, key in ((asked, torch.zeros_like(known)), (~asked, known)):
        place = by_size[wanted[by_size]]
        place = place[torch.argsort(key[place], stable=True)]
        yield from (place[i : i + chunk] for i in range(0, len(place), chunk))
