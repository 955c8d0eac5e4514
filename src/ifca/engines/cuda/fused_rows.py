"""The samples of clients on a GPU for the fused round: fp16 parts, Gram matrices, tiles of rows.

Rows stand one client after the other, whatever the clients' sizes. A row is [x 1] times a vector of units.
Pixels are whole numbers up to 255, exact in fp16; their unit is 1/255. A float is the sum of two fp16 numbers
to 22 bits of its column's largest, in a unit that is a power of two. For TF32 a float is one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.buckets import rows_of
from ifca.data import Clients
from ifca.engines.cuda.halves import HIGHEST, powers_of_two

ROWS = 64  # samples of a tile
SMALL = 32  # samples for which half a tile will do
PADDED = 16  # Gram matrices have a multiple of so many rows and columns
PIECE = 2**26  # numbers that are prepared at once
PIXEL = 1 / 255


class Tiles(NamedTuple):
    """Some clients' rows, one client after the other, and their tiles: those of the largest client first.

    The last client is nobody, without samples: rows and tiles that are left over are its.
    """

    size: Tensor  # [p + 1] samples
    start: Tensor  # [p + 1] first row
    gram: Tensor  # [p + 1] where its Gram matrix begins
    place: Tensor  # [p + 1] its number among all clients
    tile: Tensor  # [p + 1] first tile
    client: Tensor  # [tiles] whose it is
    first: Tensor  # [tiles] its first sample
    whose: Tensor  # [rows] the client of a row


def bytes_of(sizes: NDArray[np.int64], d: int, *, pixels: bool) -> int:
    """What the rows and Gram matrices of clients of such sizes take."""
    parts = 2 if pixels else 3
    return int(sizes.sum()) * (2 * parts * _width(d) + 12) + 4 * int((_padded(sizes) ** 2).sum())


def _width(d: int) -> int:
    """Features, a one for the bias, and zeros up to what tensor cores like."""
    return (d + 1 + 7) // 8 * 8


def _padded(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows and columns of each client's Gram matrix."""
    wide: NDArray[np.int64] = -(-sizes // PADDED) * PADDED
    return wide


class FusedRows:
    """All clients' samples; made once for a run."""

    def __init__(self, clients: Clients, device: torch.device, *, single: bool = False) -> None:
        """single: floats, and so Gram matrices, are one fp16 number each."""
        self.sizes, self.offsets, self.single = clients.sizes, clients.offsets, single
        self.device, self.pixels = device, clients.x.dtype == torch.uint8
        self.d = int(clients.x[0].numel())
        self.width = _width(self.d)
        rows, parts = int(self.offsets[-1]), 1 if single else 2 if self.pixels else 3
        self.unit = self._units(clients)
        self.x = torch.zeros(rows, parts * self.width, dtype=torch.float16, device=device)
        self.y = torch.empty(rows, dtype=torch.int32, device=device)
        for at in _slices(rows, self.d):
            self._fill(at, *clients.at(at))
        lengths = [_lengths(self.x[at, : self.width]).amax() for at in _slices(rows, self.d)]
        self.longest = torch.stack(lengths).amax()  # row, in units
        self.scale = torch.ones(len(self.sizes), device=device)
        wide = _padded(self.sizes)
        order = np.argsort(wide, kind="stable")  # Gram matrices of one width follow each other
        self._gram_at = np.empty(len(wide), np.int64)
        self._gram_at[order] = np.cumsum(wide[order] ** 2) - wide[order] ** 2
        size = int((wide**2).sum())
        self._grams = [
            torch.zeros(size, dtype=torch.float16, device=device) for _ in range(1 if single else 2)
        ]
        self.grams = self._grams[0], self._grams[-1]
        for same in np.split(order, np.flatnonzero(np.diff(wide[order])) + 1):
            for some in np.array_split(same, -(-len(same) * int(wide[same[0]]) * self.d // PIECE)):
                self._fill_grams(clients, some, int(wide[same[0]]))

    def _units(self, clients: Clients) -> Tensor:
        """1/255 of pixels; of floats the powers of two that bring each column's largest into fp16's range."""
        unit = torch.full((self.width,), PIXEL, device=self.device)
        if not self.pixels:
            pieces = (clients.at(at)[0].flatten(1) for at in _slices(int(self.offsets[-1]), self.d))
            largest = torch.stack([piece.abs().amax(0).float() for piece in pieces]).amax(0)
            ratio = (largest.to(self.device) / HIGHEST).clamp(min=2.0**-100)
            unit[: self.d], unit[self.d :] = torch.exp2(torch.ceil(torch.log2(ratio))), 1.0
        return unit

    def _fill(self, at: slice, x: Tensor, y: Tensor) -> None:
        """Some rows: [X X] of pixels, [high high low] of floats, [high] alone; with a one for the bias."""
        self.y[at] = y.to(self.device, torch.int32)
        raw = x.to(self.device).flatten(1).float()
        raw = raw if self.pixels else raw / self.unit[: self.d]
        high = raw.half()
        parts = [high, high] if self.pixels else [high, high, (raw - high.float()).half()]
        for i, part in enumerate(parts[:1] if self.single else parts):
            self.x[at, i * self.width : i * self.width + self.d] = part
            if i < 2:
                self.x[at, i * self.width + self.d] = 255.0 if self.pixels else 1.0

    def _fill_grams(self, clients: Clients, who: NDArray[np.int64], wide: int) -> None:
        """G = X X' + 1 1' of some clients whose matrices follow each other, times a power of two each."""
        data = clients.padded(who, self.device, torch.float32, wide)  # pixels from 0 to 1
        x, there = data.x.flatten(2), data.weight
        with full_precision():
            g = torch.bmm(x, x.transpose(1, 2)).add_(1)
        g *= there[:, :, None] * there[:, None, :]
        scale = powers_of_two(g.abs().amax((1, 2)), HIGHEST)
        self.scale[torch.from_numpy(who).to(self.device)] = scale
        g *= scale[:, None, None]
        begin = int(self._gram_at[who[0]])
        for part in self._grams:
            high = part[begin : begin + g.numel()].view_as(g).copy_(g)
            g -= high

    def tiles(self, who: NDArray[np.int64], *, exact: bool) -> Tiles:
        """Of some clients, in their order, in main memory; unless exact with room for some more rows."""
        sizes, nobody = self.sizes[who], len(who)
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        order = np.argsort(-sizes, kind="stable")
        count = -(-sizes[order] // ROWS)
        before = np.cumsum(count) - count
        client = np.repeat(order, count)
        first = (np.arange(len(client)) - np.repeat(before, count)) * ROWS
        tile = np.zeros_like(start)
        tile[order] = before
        whose = np.repeat(np.arange(nobody), sizes)
        if not exact:
            spare = _evened(len(client)) - len(client)
            client = np.pad(client, (0, spare), constant_values=nobody)
            first = np.pad(first, (0, spare))
            whose = np.pad(whose, (0, _evened(len(whose)) - len(whose)), constant_values=nobody)
        wide = np.append(sizes, 0), start, np.append(self._gram_at[who], 0), np.append(who, 0), tile
        size, begin, gram, place, at, of, firsts, all_rows = map(
            torch.from_numpy, (*wide, client, first, whose)
        )
        return Tiles(size.int(), begin, gram, place, at, of.int(), firsts.int(), all_rows)

    def index(self, who: NDArray[np.int64]) -> Tensor:
        """The rows of some clients."""
        return torch.from_numpy(rows_of(self.offsets, who)).to(self.device)

    @property
    def count(self) -> int:
        """Parts of a number."""
        return 1 if self.pixels or self.single else 2

    def parts(self, x: Tensor, rows: Tensor | None) -> Tensor:
        """Some rows of X (None: all) as fp16 parts side by side, each part once."""
        count, width = self.count, self.width
        once = slice((count - 1) * width, (2 * count - 1) * width)
        if rows is None:
            return x[:, once]
        words = x.view(torch.int64)[:, once.start // 4 : once.stop // 4]  # four numbers at a time: faster
        return words.index_select(0, rows).view(torch.float16)

    def features(self, x: Tensor) -> Tensor:
        """Some rows as floats in their own units: [rows, d]."""
        whole = x[:, : self.d].float()
        if self.count == 2:
            whole += x[:, 2 * self.width : 2 * self.width + self.d]
        return whole * self.unit[: self.d]


def _lengths(x: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(x.float(), dim=1)
    return found


def _evened(count: int) -> int:
    """Rounded up by an eighth at most, so that much the same numbers need one capture."""
    step = 1 << max(0, count.bit_length() - 4)
    return -(-count // step) * step


def _slices(rows: int, d: int) -> Iterator[slice]:
    """All rows, some at a time."""
    some = max(1, PIECE // d)
    return (slice(i, min(rows, i + some)) for i in range(0, rows, some))


@contextmanager
def full_precision() -> Iterator[None]:
    """fp32 products without TF32 and fp16 products that reduce in float32, whatever the caller has set."""
    flags = torch.backends.cuda.matmul
    before = flags.allow_fp16_reduced_precision_reduction, flags.allow_tf32
    flags.allow_fp16_reduced_precision_reduction = flags.allow_tf32 = False
    try:
        yield
    finally:
        flags.allow_fp16_reduced_precision_reduction, flags.allow_tf32 = before
