"""Triton kernels of the identity pass (fused.py): losses of tiles of samples under every model, and their sums.

Products are tf32x3, float32-like; TF32 where z is fp16 numbers. Imported only where Triton is there.
"""
# mypy: ignore-errors
# ruff: noqa

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ifca.engines.cuda.fused_rows import ROWS, Tiles


@triton.jit
def _tile_loss(
    client_ptr, first_ptr, size_ptr, start_ptr, own_ptr, z_ptr, w2_ptr, b2_ptr, y_ptr, out_ptr, zi_ptr, k,
    zs: tl.constexpr, H: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, BR: tl.constexpr, BH: tl.constexpr,
    OWN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Of one of k models, whose Z are side by side; OWN: of the client's, of which alone Z is there."""
    pid = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1)
    i = tl.load(client_ptr + pid).to(tl.int64)
    j = tl.load(own_ptr + i) if OWN else place
    n = tl.load(size_ptr + i)
    at = tl.load(start_ptr + i)
    rows = tl.load(first_ptr + pid) + tl.arange(0, BR)
    ok = rows < n
    cls = tl.arange(0, CP)
    acc = tl.zeros([BR, CP], tl.float32)
    zi = tl.load(zi_ptr + j)
    own = z_ptr + at * zs + rows[:, None] * zs + place * H
    for t in range(tl.cdiv(H, BH)):
        cols = t * BH + tl.arange(0, BH)
        z = tl.load(own + cols[None, :], mask=ok[:, None] & (cols[None, :] < H), other=0.0)
        z = z.to(tl.float32)
        w2 = tl.load(
            w2_ptr + (j * C + cls[None, :]) * H + cols[:, None],
            mask=(cls[None, :] < C) & (cols[:, None] < H),
            other=0.0,
        )
        acc = tl.dot(tl.maximum(z * zi, 0.0), w2, acc, input_precision=PRECISION)
    logits = acc + tl.load(b2_ptr + j * C + cls, mask=cls < C, other=float("-inf"))[None, :]
    top = tl.max(logits, 1)
    lse = top + tl.log(tl.sum(tl.exp(logits - top[:, None]), 1))
    y = tl.load(y_ptr + at + rows, mask=ok, other=0)
    picked = tl.sum(tl.where(cls[None, :] == y[:, None], logits, 0.0), 1)
    tl.store(
        out_ptr + pid * k + place,
        tl.sum(tl.where(ok, lse - picked, 0.0), 0) / tl.maximum(n, 1).to(tl.float32),
    )


def tile_losses(
    z: Tensor, zi: Tensor, tiles: Tiles, w2: Tensor, b2: Tensor, y: Tensor, own: Tensor | None
) -> Tensor:
    """z [rows, k h] times the numbers zi [k] -> what each tile adds to its client's mean loss, [tiles, k].

    own: [p] the model of each client, of which alone z is there: [rows, h] -> [tiles, 1].
    """
    _, c, h = w2.shape
    k = 1 if own is not None else len(w2)
    out = torch.empty(len(tiles.client), k, device=z.device)
    cp = max(16, triton.next_power_of_2(c))
    _tile_loss[(len(tiles.client), k)](
        tiles.client, tiles.first, tiles.size, tiles.start, tiles.start if own is None else own, z, w2, b2, y,
        out, zi, k, z.stride(0), h, c, cp, ROWS, 32, own is not None,
        "tf32x3" if z.dtype == torch.float32 else "tf32", num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _add_tiles(values_ptr, tile_ptr, size_ptr, total_ptr, W: tl.constexpr, BR: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """The sum of what the tiles of a client have, always in the same order."""
    i = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = cols < W
    tile = tl.load(tile_ptr + i).to(tl.int64)
    n = tl.load(size_ptr + i)
    acc = tl.zeros([BLOCK], tl.float32)
    for t in range(tl.cdiv(n, BR)):
        acc += tl.load(values_ptr + (tile + t) * W + cols, mask=ok, other=0.0)
    tl.store(total_ptr + i * W + cols, acc, mask=ok)


def add_tiles(values: Tensor, tiles: Tiles) -> Tensor:
    """values [tiles, w] -> [p, w], the sum by client."""
    w = values.shape[1]
    total = values.new_empty(len(tiles.size), w)
    block = min(1024, triton.next_power_of_2(w))
    grid = (len(total), triton.cdiv(w, block))
    _add_tiles[grid](values, tiles.tile, tiles.size, total, w, ROWS, block, num_warps=4)
    return total
