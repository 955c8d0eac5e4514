"""Triton kernels of many clients' convolutions, each client with weights of its own (convnet.py).

A convolution here keeps the image's size: odd square kernel, stride 1, zeros around. Activations are
channels-last, [clients, batch, height, width, channels], so that a pixel's channels lie side by side and one tap
of the kernel is one tile of a matrix product (implicit GEMM). Sums are float32; operands are bfloat16, or
float32 multiplied as PRECISION says. Split sums are added up by the caller in a fixed order: same bits each time.
"""
# mypy: ignore-errors
# ruff: noqa

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ifca.engines.cuda.halves import beside, half_unit, halved

CONV = {"rows": 128, "warps": 8, "stages": 3}  # tiles, measured best on an H200
FIRST = {"rows": 128, "warps": 4, "stages": 3}
SLOPES = {"columns": 128, "rows": 64, "splits": 2, "warps": 4, "stages": 3}
FIRST_SLOPES = {"rows": 64, "splits": 14, "warps": 4, "stages": 2}


@triton.jit
def _conv(
    x_ptr, w_ptr, b_ptr, y_ptr, rows, H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr,
    KS: tl.constexpr, FORWARD: tl.constexpr, BM: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """BM pixels of one client; w: [clients, taps, CO, CI]. FORWARD: add the bias, then ReLU."""
    client = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    px = r % W
    py = (r // W) % H
    ch = tl.arange(0, CI)
    co = tl.arange(0, CO)
    x_ptr += client * rows * CI
    w_ptr += client * (KS * KS * CI * CO)
    acc = tl.zeros([BM, CO], tl.float32)
    for tap in tl.range(0, KS * KS, num_stages=STAGES):
        dy = tap // KS - KS // 2
        dx = tap % KS - KS // 2
        inside = (r < rows) & (py + dy >= 0) & (py + dy < H) & (px + dx >= 0) & (px + dx < W)
        a = tl.load(x_ptr + (r + dy * W + dx)[:, None] * CI + ch[None, :], mask=inside[:, None], other=0.0)
        b = tl.load(w_ptr + (tap * CO + co)[None, :] * CI + ch[:, None])
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    if FORWARD:
        acc += tl.load(b_ptr + client * CO + co)[None, :]
        acc = tl.where(acc < 0.0, 0.0, acc)  # NaN stays NaN
    out = y_ptr + client * rows * CO + r[:, None] * CO + co[None, :]
    tl.store(out, acc.to(y_ptr.dtype.element_ty), mask=(r < rows)[:, None])


@triton.jit
def _conv_first(
    x_ptr, at_ptr, w_ptr, b_ptr, y_ptr, xu_ptr, wu_ptr, each, batch, H: tl.constexpr, W: tl.constexpr, LINE: tl.constexpr,
    CP: tl.constexpr, SEG: tl.constexpr, CO: tl.constexpr, KS: tl.constexpr, BM: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """The first layer, with few channels: SEG values of an image's line hold the KS taps of one row of the kernel.

    x: [images, H + KS - 1, LINE] zeros around, CP channels a pixel; at: [clients, batch] image numbers;
    w: [clients, KS, CO, SEG], zero where no tap is. SCALED: both are times a unit, x of
    the client whose image it is (each has so many), w of its own.
    """
    client = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    ok = r < batch * (H * W)
    px = r % W
    py = (r // W) % H
    seg = tl.arange(0, SEG)
    co = tl.arange(0, CO)
    image = tl.load(at_ptr + client * batch + r // (H * W), mask=ok, other=0).to(tl.int64)
    start = image * ((H + KS - 1) * LINE) + py * LINE + px * CP
    w_ptr += client * (KS * SEG * CO)
    acc = tl.zeros([BM, CO], tl.float32)
    for dy in tl.range(0, KS, num_stages=STAGES):
        a = tl.load(x_ptr + (start + dy * LINE)[:, None] + seg[None, :], mask=ok[:, None], other=0.0)
        b = tl.load(w_ptr + (dy * CO + co)[None, :] * SEG + seg[:, None])
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    if SCALED:
        of = tl.load(xu_ptr + image // each, mask=ok, other=1.0) * tl.load(wu_ptr + client)
        acc /= of[:, None]
    acc += tl.load(b_ptr + client * CO + co)[None, :]
    acc = tl.where(acc < 0.0, 0.0, acc)
    out = y_ptr + client * batch * (H * W * CO) + r[:, None] * CO + co[None, :]
    tl.store(out, acc.to(y_ptr.dtype.element_ty), mask=ok[:, None])


@triton.jit
def _slopes(
    x_ptr, g_ptr, out_ptr, sum_ptr, rows, per, H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr,
    KS: tl.constexpr, BC: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient by the weights: BC of the (tap, input channel) columns, summed over a split of the client's pixels.

    out: [splits, clients, columns padded, CO]; sum: [splits, clients, CO] gradient by the bias.
    """
    block = tl.program_id(0)
    split = tl.program_id(1)
    client = tl.program_id(2).to(tl.int64)
    cols = block * BC + tl.arange(0, BC)
    tap = cols // CI
    ch = tl.max_contiguous(cols % CI, 16)
    dy = tap // KS - KS // 2
    dx = tap % KS - KS // 2
    shift = (dy * W + dx) * CI + ch
    co = tl.arange(0, CO)
    x_ptr += client * rows * CI
    g_ptr += client * rows * CO
    last = tl.minimum(split * per + per, rows)
    acc = tl.zeros([BC, CO], tl.float32)
    total = tl.zeros([BR, CO], tl.float32)
    for r0 in tl.range(split * per, last, BR, num_stages=STAGES):
        r = r0 + tl.arange(0, BR)
        ok = r < last
        yy = ((r // W) % H)[:, None] + dy[None, :]
        xx = (r % W)[:, None] + dx[None, :]
        inside = ok[:, None] & (tap < KS * KS)[None, :] & (yy >= 0) & (yy < H) & (xx >= 0) & (xx < W)
        a = tl.load(x_ptr + r[:, None] * CI + shift[None, :], mask=inside, other=0.0)
        g = tl.load(g_ptr + r[:, None] * CO + co[None, :], mask=ok[:, None], other=0.0)
        acc = tl.dot(tl.trans(a), g, acc, input_precision=PRECISION)
        total += g.to(tl.float32)
    part = split * tl.num_programs(2) + client
    out = out_ptr + part * (tl.num_programs(0) * BC * CO) + cols[:, None] * CO + co[None, :]
    tl.store(out, acc)
    if block == 0:
        tl.store(sum_ptr + part * CO + co, tl.sum(total, 0))


@triton.jit
def _slopes_first(
    x_ptr, at_ptr, g_ptr, out_ptr, sum_ptr, unit_ptr, batch, per, H: tl.constexpr, W: tl.constexpr,
    LINE: tl.constexpr, CP: tl.constexpr, SEG: tl.constexpr, CO: tl.constexpr, KS: tl.constexpr, BC: tl.constexpr,
    BR: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr, HALVED: tl.constexpr,
):  # fmt: skip
    """The same for the first layer: all of its (line, place in the line) columns at once.

    HALVED: g is read as fp16, times its unit.
    """
    split = tl.program_id(0)
    client = tl.program_id(1).to(tl.int64)
    cols = tl.arange(0, BC)
    dy = cols // SEG
    shift = dy * LINE + tl.max_contiguous(cols % SEG, 16)
    co = tl.arange(0, CO)
    rows = batch * (H * W)
    unit = tl.load(unit_ptr + client)
    g_ptr += client * rows * CO
    last = tl.minimum(split * per + per, rows)
    acc = tl.zeros([BC, CO], tl.float32)
    total = tl.zeros([BR, CO], tl.float32)
    for r0 in tl.range(split * per, last, BR, num_stages=STAGES):
        r = r0 + tl.arange(0, BR)
        ok = r < last
        image = tl.load(at_ptr + client * batch + r // (H * W), mask=ok, other=0).to(tl.int64)
        start = image * ((H + KS - 1) * LINE) + ((r // W) % H) * LINE + (r % W) * CP
        a = tl.load(x_ptr + start[:, None] + shift[None, :], mask=ok[:, None] & (dy < KS)[None, :], other=0.0)
        g = tl.load(g_ptr + r[:, None] * CO + co[None, :], mask=ok[:, None], other=0.0)
        total += g.to(tl.float32)
        if HALVED:
            g = (g * unit).to(tl.float16)
        acc = tl.dot(tl.trans(a), g, acc, input_precision=PRECISION)
    part = split * tl.num_programs(1) + client
    tl.store(out_ptr + part * (BC * CO) + cols[:, None] * CO + co[None, :], acc)
    tl.store(sum_ptr + part * CO + co, tl.sum(total, 0))


def conv(x: Tensor, w: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    """x [c, b, h, w, ci], w [c, ks, ks, co, ci] -> [c, b, h, w, co]; with a bias [c, co]: it, then ReLU."""
    (c, b, h, wide, ci), (ks, co) = x.shape, w.shape[2:4]
    assert b * h * wide * max(ci, co) < 2**31  # places within a client are 32 bits
    y = x.new_empty(c, b, h, wide, co)
    grid = (triton.cdiv(b * h * wide, CONV["rows"]), c)
    _conv[grid](
        x, w, w if bias is None else bias, y, b * h * wide, h, wide, ci, co, ks, bias is not None, CONV["rows"],
        CONV["stages"], precision, num_warps=CONV["warps"],
    )  # fmt: skip
    return y


def conv_slopes(x: Tensor, g: Tensor, ks: int, precision: str) -> tuple[Tensor, Tensor]:
    """Gradients by the weights [c, ks, ks, ci, co] and by the bias [c, co]; g: by the output, [c, b, h, w, co].

    TF32 reads both operands along the summed dimension, which here is not the one in memory order: they are
    rounded to as many bits as fp16 instead, which is several times faster.
    """
    if precision == "tf32" and x.dtype == torch.float32:
        (x, of_x), (g, of_g) = halved(x), halved(g)
        slope, bias = conv_slopes(x, g, ks, precision)
        return slope / beside(of_x * of_g, slope), bias / of_g[:, None]
    (c, b, h, wide, ci), co, t = x.shape, g.shape[-1], SLOPES
    blocks, rows = triton.cdiv(ks * ks * ci, t["columns"]), b * h * wide
    per = triton.cdiv(triton.cdiv(rows, t["splits"]), t["rows"]) * t["rows"]
    splits = triton.cdiv(rows, per)
    out = torch.empty(splits, c, blocks * t["columns"], co, device=x.device)
    total = torch.empty(splits, c, co, device=x.device)
    _slopes[(blocks, splits, c)](
        x, g, out, total, rows, per, h, wide, ci, co, ks, t["columns"], t["rows"], t["stages"], precision,
        num_warps=t["warps"],
    )  # fmt: skip
    return out.sum(0)[:, : ks * ks * ci].view(c, ks, ks, ci, co), total.sum(0)


def first_shape(width: int, channels: int, ks: int) -> tuple[int, int, int]:
    """Of the first layer's images: channels stored a pixel, values of a segment, values of a line."""
    stored = triton.next_power_of_2(channels)
    segment = max(16, triton.next_power_of_2(ks * stored))
    return stored, segment, (width - 1 + -(-segment // stored)) * stored


def conv_first(
    x: Tensor,
    at: Tensor,
    w: Tensor,
    bias: Tensor,
    width: int,
    stored: int,
    precision: str,
    unit: Tensor,
    each: int,
) -> Tensor:
    """x [images, h + ks - 1, line], at [c, b], w [c, ks, co, segment] -> ReLU of the convolution, [c, b, h, w, co].

    x in fp16 is the images, each so many of a client, times the client's unit; w is read as fp16, too.
    """
    (c, b), (ks, co, segment), line = at.shape, w.shape[1:], x.shape[-1]
    h = x.shape[1] - ks + 1
    assert b * h * width * co < 2**31
    y, scaled = w.new_empty(c, b, h, width, co), x.dtype == torch.float16
    w, of_w = halved(w) if scaled else (w, unit)
    grid = (triton.cdiv(b * h * width, FIRST["rows"]), c)
    _conv_first[grid](
        x, at.contiguous(), w, bias, y, unit, of_w, each, b, h, width, line, stored, segment, co, ks, FIRST["rows"],
        FIRST["stages"], precision, scaled, num_warps=FIRST["warps"],
    )  # fmt: skip
    return y


def conv_first_slopes(
    x: Tensor, at: Tensor, g: Tensor, ks: int, stored: int, segment: int, precision: str, unit: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients by the weights [c, ks, segment, co] and by the bias [c, co]; x as in conv_first, unit: [c]."""
    (c, b, h, width, co), t, scaled = g.shape, FIRST_SLOPES, x.dtype == torch.float16
    columns, rows = triton.next_power_of_2(ks * segment), b * h * width
    per = triton.cdiv(triton.cdiv(rows, t["splits"]), t["rows"]) * t["rows"]
    splits = triton.cdiv(rows, per)
    out = torch.empty(splits, c, columns, co, device=x.device)
    total = torch.empty(splits, c, co, device=x.device)
    of_g = half_unit(g) if scaled else unit
    _slopes_first[(splits, c)](
        x, at.contiguous(), g, out, total, of_g, b, per, h, width, x.shape[-1], stored, segment, co, ks, columns, t["rows"],
        t["stages"], precision, scaled, num_warps=t["warps"],
    )  # fmt: skip
    slope = out.sum(0)[:, : ks * segment].view(c, ks, segment, co)
    return slope / beside(unit * of_g, slope) if scaled else slope, total.sum(0)
