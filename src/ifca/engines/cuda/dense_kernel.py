"""Triton kernel of a dense layer on the way back (convnet.py): the gradient by its inputs, and its step.

Weights are read once for both and written once, and no gradient by them lies between: of a large layer and a small
batch that is all the memory there is to read. A larger batch, of which a program would have to hold too much, takes
two products. Float32 is multiplied as PRECISION says.
"""
# mypy: ignore-errors
# ruff: noqa

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST = 64  # batch of the kernel
TILE = {"out": 32, "in": 64, "stages": 3, "warps": 4}


@triton.jit
def _dense_back(
    g_ptr, x_ptr, w_ptr, dx_ptr,
    B: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr, BB: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr,
    STAGES: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """G W and W - G'X of BI inputs of one client, all outputs in turn; RELU: X is a ReLU's output."""
    i = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BI + tl.arange(0, BI)
    rows = tl.arange(0, BB)
    ic = cols < IN
    both = (rows[:, None] < B) & ic[None, :]
    seen = i * (B * IN) + rows[:, None] * IN + cols[None, :]
    x = tl.load(x_ptr + seen, mask=both, other=0.0)
    g_ptr += i * (B * OUT)
    w_ptr += i * (OUT * IN)
    acc = tl.zeros([BB, BI], tl.float32)
    # Seen with Triton 3.6: a loop of one trip ends in an illegal memory access.
    for o in tl.range(0, max(OUT, BO + 1), BO, num_stages=STAGES):
        outs = o + tl.arange(0, BO)
        oc = outs < OUT
        place = w_ptr + outs[:, None] * IN + cols[None, :]
        w = tl.load(place, mask=oc[:, None] & ic[None, :], other=0.0)
        g = tl.load(
            g_ptr + rows[:, None] * OUT + outs[None, :], mask=(rows[:, None] < B) & oc[None, :], other=0.0
        )
        acc = tl.dot(g, w.to(g.dtype), acc, input_precision=PRECISION)
        slope = tl.dot(tl.trans(g), x, input_precision=PRECISION)
        tl.store(place, w - slope, mask=oc[:, None] & ic[None, :])
    if RELU:
        acc = tl.where(x > 0.0, acc, 0.0)
    tl.store(dx_ptr + seen, acc, mask=both)


def dense_back(g: Tensor, x: Tensor, weight: Tensor, precision: str, *, relu: bool) -> Tensor:
    """g [c, b, out], x [c, b, in], weight [c, out, in], which takes its step -> the gradient by x, in float32.

    g is the gradient by the layer's outputs, times the step. relu: x is a ReLU's output; then it is that by its input.
    """
    (c, b, out), wide = g.shape, x.shape[2]
    assert weight.is_contiguous()  # it is changed in place
    if b > LARGEST:
        dx = product(g, weight.to(g.dtype))
        if g.dtype == weight.dtype:  # no gradient lies between
            weight.baddbmm_(g.transpose(1, 2), x, alpha=-1)
        else:
            weight.sub_(product(g.transpose(1, 2), x))
        return torch.where(x > 0, dx, 0) if relu else dx
    g, x = g.contiguous(), x.contiguous()
    dx = torch.empty(x.shape, device=x.device)
    outs, ins = (
        min(TILE[side], max(16, triton.next_power_of_2(n))) for side, n in (("out", out), ("in", wide))
    )
    _dense_back[(c, triton.cdiv(wide, ins))](
        g, x, weight, dx, b, out, wide, max(16, triton.next_power_of_2(b)), outs, ins, TILE["stages"], relu,
        precision, num_warps=TILE["warps"], num_stages=1,
    )  # fmt: skip
    return dx


def product(a: Tensor, b: Tensor) -> Tensor:
    """Batched product with a float32 result."""
    return torch.bmm(a, b) if a.dtype == torch.float32 else torch.bmm(a, b, out_dtype=torch.float32)
