"""Triton kernel of the identity pass (fused.py): losses of every sample under every model.

Products are tf32x3, float32-like; never plain TF32. Imported only where Triton is there.
"""
# mypy: ignore-errors
# ruff: noqa

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _row_loss(
    z_ptr,
    w2_ptr,
    b2_ptr,
    y_ptr,
    sw_ptr,
    out_ptr,
    zi_ptr,
    rows_total,
    zs,
    H: tl.constexpr,
    C: tl.constexpr,
    CP: tl.constexpr,
    BR: tl.constexpr,
    BH: tl.constexpr,
):
    j = tl.program_id(1)
    rows = tl.program_id(0) * BR + tl.arange(0, BR)
    ok = rows < rows_total
    cls = tl.arange(0, CP)
    acc = tl.zeros([BR, CP], tl.float32)
    zi = tl.load(zi_ptr)
    zrow = z_ptr + rows[:, None].to(tl.int64) * zs + j * H
    for t in range(tl.cdiv(H, BH)):
        cols = t * BH + tl.arange(0, BH)
        z = tl.load(zrow + cols[None, :], mask=ok[:, None] & (cols[None, :] < H), other=0.0)
        w2 = tl.load(
            w2_ptr + (j * C + cls[None, :]) * H + cols[:, None],
            mask=(cls[None, :] < C) & (cols[:, None] < H),
            other=0.0,
        )
        acc = tl.dot(tl.maximum(z * zi, 0.0), w2, acc, input_precision="tf32x3")
    b2 = tl.load(b2_ptr + j * C + cls, mask=cls < C, other=float("-inf"))
    logits = acc + b2[None, :]
    top = tl.max(logits, 1)
    lse = top + tl.log(tl.sum(tl.exp(logits - top[:, None]), 1))
    y = tl.load(y_ptr + rows, mask=ok, other=0)
    picked = tl.sum(tl.where(cls[None, :] == y[:, None], logits, 0.0), 1)
    sw = tl.load(sw_ptr + rows, mask=ok, other=0.0)
    tl.store(out_ptr + j * rows_total + rows, (lse - picked) * sw, mask=ok)


def row_losses(z: Tensor, zi: Tensor, w2: Tensor, b2: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """z [rows, k h] times the number zi -> sample weight times loss of every row under every model, [k, rows]."""
    rows, (k, c, h) = z.shape[0], w2.shape
    out = torch.empty(k, rows, device=z.device)
    cp = max(16, triton.next_power_of_2(c))
    grid = (triton.cdiv(rows, 128), k)
    _row_loss[grid](z, w2, b2, y, w, out, zi, rows, z.stride(0), h, c, cp, 128, 32, num_warps=4)
    return out
