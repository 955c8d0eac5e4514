"""Triton kernels between convolutions: max pooling and local response normalisation, channels-last, and back.

The gradient of the ReLU before them is theirs too. Arithmetic is float32 whatever the type in memory.
"""
# mypy: ignore-errors
# ruff: noqa

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64


@triton.jit
def _pool(
    x_ptr, y_ptr, at_ptr, rows, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    C: tl.constexpr, KS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, RELU: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Maxima and their places; RELU: x is a ReLU's output, where a maximum of zero passes no gradient (place 255)."""
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    ox = r % OW
    oy = (r // OW) % OH
    image = r // (OH * OW)
    ch = tl.arange(0, C)
    best = tl.full([BM, C], 0.0 if RELU else float("-inf"), tl.float32)
    place = tl.full([BM, C], 255, tl.int32)
    for tap in tl.static_range(KS * KS):
        yy = oy * S - P + tap // KS
        xx = ox * S - P + tap % KS
        inside = (r < rows) & (yy >= 0) & (yy < H) & (xx >= 0) & (xx < W)
        v = tl.load(
            x_ptr + ((image * H + yy) * W + xx).to(tl.int64)[:, None] * C + ch[None, :],
            mask=inside[:, None],
            other=float("-inf"),
        ).to(tl.float32)
        better = (v > best) | (v != v)
        best = tl.where(better, v, best)
        place = tl.where(better, tap, place)
    to = r.to(tl.int64)[:, None] * C + ch[None, :]
    tl.store(y_ptr + to, best.to(y_ptr.dtype.element_ty), mask=(r < rows)[:, None])
    tl.store(at_ptr + to, place.to(tl.uint8), mask=(r < rows)[:, None])


@triton.jit
def _unpool(
    g_ptr, at_ptr, dx_ptr, rows, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    C: tl.constexpr, KS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Every input pixel gathers from the windows whose maximum it is; at most (KS / S)^2 of them, rounded up."""
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    px = r % W
    py = (r // W) % H
    image = r // (H * W)
    ch = tl.arange(0, C)
    total = tl.zeros([BM, C], tl.float32)
    NEAR: tl.constexpr = (KS + S - 1) // S
    for near in tl.static_range(NEAR * NEAR):
        oy = (py + P) // S - near // NEAR
        ox = (px + P) // S - near % NEAR
        ky = py + P - oy * S
        kx = px + P - ox * S
        inside = (r < rows) & (ky < KS) & (kx < KS) & (oy >= 0) & (oy < OH) & (ox >= 0) & (ox < OW)
        out = ((image * OH + oy) * OW + ox).to(tl.int64)[:, None] * C + ch[None, :]
        place = tl.load(at_ptr + out, mask=inside[:, None], other=255).to(tl.int32)
        g = tl.load(g_ptr + out, mask=inside[:, None], other=0.0).to(tl.float32)
        total += tl.where(place == (ky * KS + kx)[:, None], g, 0.0)
    tl.store(
        dx_ptr + r.to(tl.int64)[:, None] * C + ch[None, :],
        total.to(dx_ptr.dtype.element_ty),
        mask=(r < rows)[:, None],
    )


@triton.jit
def _norm(
    x_ptr,
    band_ptr,
    y_ptr,
    rows,
    BETA: tl.constexpr,
    C: tl.constexpr,
    BM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    ch = tl.arange(0, C)
    at = r.to(tl.int64)[:, None] * C + ch[None, :]
    x = tl.load(x_ptr + at, mask=(r < rows)[:, None], other=0.0).to(tl.float32)
    band = tl.load(band_ptr + ch[:, None] * C + ch[None, :])
    d = tl.dot(x * x, band, input_precision=PRECISION) + 1.0
    y = x * tl.exp2(tl.log2(d) * -BETA)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=(r < rows)[:, None])


@triton.jit
def _unnorm(
    x_ptr, band_ptr, g_ptr, dx_ptr, rows, BETA: tl.constexpr, C: tl.constexpr, RELU: tl.constexpr, BM: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """y = x d^-beta, d = 1 + B x^2: dx = g d^-beta - 2 beta x B (g x d^(-beta - 1)); B is symmetric."""
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    ch = tl.arange(0, C)
    at = r.to(tl.int64)[:, None] * C + ch[None, :]
    x = tl.load(x_ptr + at, mask=(r < rows)[:, None], other=0.0).to(tl.float32)
    g = tl.load(g_ptr + at, mask=(r < rows)[:, None], other=0.0).to(tl.float32)
    band = tl.load(band_ptr + ch[:, None] * C + ch[None, :])
    d = tl.dot(x * x, band, input_precision=PRECISION) + 1.0
    scaled = g * tl.exp2(tl.log2(d) * -BETA)
    dx = scaled - 2.0 * BETA * x * tl.dot(scaled * x / d, band, input_precision=PRECISION)
    if RELU:
        dx = tl.where(x > 0.0, dx, 0.0)
    tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=(r < rows)[:, None])


def pool(x: Tensor, ks: int, stride: int, padding: int, *, relu: bool) -> tuple[Tensor, Tensor]:
    """x [c, b, h, w, channels] -> maxima and places; relu: x comes straight from a ReLU."""
    c, b, h, w, channels = x.shape
    oh, ow = ((side + 2 * padding - ks) // stride + 1 for side in (h, w))
    y = x.new_empty(c, b, oh, ow, channels)
    at = torch.empty(y.shape, dtype=torch.uint8, device=x.device)
    rows = c * b * oh * ow
    _pool[(triton.cdiv(rows, ROWS),)](x, y, at, rows, h, w, oh, ow, channels, ks, stride, padding, relu, ROWS)
    return y, at


def unpool(g: Tensor, at: Tensor, height: int, width: int, ks: int, stride: int, padding: int) -> Tensor:
    """The gradient by the pooling's input."""
    c, b, oh, ow, channels = g.shape
    dx = g.new_empty(c, b, height, width, channels)
    rows = c * b * height * width
    grid = (triton.cdiv(rows, ROWS),)
    _unpool[grid](g, at, dx, rows, height, width, oh, ow, channels, ks, stride, padding, ROWS)
    return dx


def norm(x: Tensor, band: Tensor, beta: float, precision: str) -> Tensor:
    """x / (1 + band x^2)^beta over the channels."""
    y, rows = torch.empty_like(x), x.numel() // x.shape[-1]
    _norm[(triton.cdiv(rows, ROWS),)](x, band, y, rows, beta, x.shape[-1], ROWS, precision)
    return y


def unnorm(x: Tensor, band: Tensor, beta: float, g: Tensor, precision: str, *, relu: bool) -> Tensor:
    """The gradient by x; relu: and by the input of the ReLU that made x."""
    dx, rows = torch.empty_like(x), x.numel() // x.shape[-1]
    _unnorm[(triton.cdiv(rows, ROWS),)](x, band, g, dx, rows, beta, x.shape[-1], relu, ROWS, precision)
    return dx
