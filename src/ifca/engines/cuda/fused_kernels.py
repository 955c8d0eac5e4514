"""Triton kernels of the CUDA path (fused.py): classifiers with one hidden ReLU layer, clients of any size.

Rows of samples stand one client after the other, without padding. A program works on a tile: ROWS samples of
one client. Products are fp32-like: float32 operands as two fp16 parts (22 bits), float32 accumulation; never
plain TF32. Imported only where Triton is there.
"""
# mypy: ignore-errors
# ruff: noqa

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ifca.engines.cuda.fused_rows import ROWS, Tiles

TILE = {"hidden": 64, "stages": 3, "warps": 4}  # measured best on an H200


@triton.jit
def _dot3(a, b, acc):
    """acc + a b for float32 a, b as three fp16 products (22 bits of each operand; the caller scales them into range)."""
    a_hi = a.to(tl.float16)
    b_hi = b.to(tl.float16)
    a_lo = (a - a_hi.to(tl.float32)).to(tl.float16)
    b_lo = (b - b_hi.to(tl.float32)).to(tl.float16)
    acc = tl.dot(a_hi, b_hi, acc)
    acc = tl.dot(a_hi, b_lo, acc)
    return tl.dot(a_lo, b_hi, acc)


@triton.jit
def _tile(
    pid, i, first, n, z_ptr, g_hi, g_lo, w2_ptr, b2_ptr, y_ptr, id_ptr, start_ptr, to_ptr, a_ptr, gram_ptr,
    old_hi, old_lo, new_hi, new_lo, moved_ptr, grad_ptr, zq_ptr, parts_ptr, ss_ptr, gs_ptr, zi_ptr, ws_ptr, ps_ptr, us_ptr, gamma_ptr,
    zs: tl.constexpr, H: tl.constexpr, CP: tl.constexpr, BR: tl.constexpr, BH: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """One local step of BR samples of client i, from its sample `first` on, in two passes over tiles of BH hidden units.

    Z = Z_0 - gamma G S and W2 = W2_0 - gamma M are formed on the fly from the sums S and M (of W2's gradients) so far.
    Old and new S are two buffers (other programs of the same client still read the old one); the tile's own
    gradient by W2 and, in a last row, by b2 goes to grad. zq is the program's own scratch for Z between the passes. G
    and S are each two fp16 matrices (hi + lo, 22 bits, scaled by a power of two of the client), so that G S is
    three tensor-core products straight from memory.
    """
    j = tl.load(id_ptr + i)
    at = tl.load(start_ptr + i)
    cls = tl.arange(0, CP)
    rows = first + tl.arange(0, BR)
    ok = rows < n
    gk = ((n + 63) // 64) * 64  # G is padded with zeros to [gk, gk]
    begin = tl.multiple_of(tl.load(gram_ptr + i), 64)
    g_hi += begin
    g_lo += begin
    z_ptr += at * zs + j * H
    old_hi += at * H
    old_lo += at * H
    new_hi += at * H
    new_lo += at * H
    zq_ptr += at * H
    w2_ptr += j * H * CP
    moved_ptr += i * (H + 1) * CP
    grad_ptr += pid * (H + 1) * CP
    gamma = tl.load(gamma_ptr)
    NH: tl.constexpr = (H + BH - 1) // BH
    ss = tl.load(ss_ptr + i)
    zi = tl.load(zi_ptr)
    back = gamma / (ss * tl.load(gs_ptr + i))
    ws = tl.load(ws_ptr)  # powers of two that bring W2 and p into fp16's range
    ps = tl.load(ps_ptr + i)
    logits = tl.zeros([BR, CP], tl.float32)
    for t in range(NH):
        cols = t * BH + tl.arange(0, BH)
        hc = cols < H
        both = ok[:, None] & hc[None, :]
        tail = cols[:, None] * CP + cls[None, :]
        z = zi * tl.load(z_ptr + rows[:, None] * zs + cols[None, :], mask=both, other=0.0)
        w2 = tl.load(w2_ptr + tail, mask=hc[:, None], other=0.0)
        if not FIRST:
            w2 -= gamma * tl.load(moved_ptr + tail, mask=hc[:, None], other=0.0)
            acc = tl.zeros([BR, BH], tl.float32)
            # Seen with Triton 3.6: a loop of one trip ends in an illegal memory access.
            for kk in tl.range(0, tl.maximum(n, BK + 1), BK, num_stages=STAGES):
                mid = kk + tl.arange(0, BK)
                place = rows[:, None] * gk + mid[None, :]
                own = mid[:, None] * H + cols[None, :]
                there = (mid[:, None] < n) & hc[None, :]
                g1 = tl.load(g_hi + place)
                s1 = tl.load(old_hi + own, mask=there, other=0.0)
                g2 = tl.load(g_lo + place)
                s2 = tl.load(old_lo + own, mask=there, other=0.0)
                acc = tl.dot(g1, s1, acc)
                acc = tl.dot(g1, s2, acc)
                acc = tl.dot(g2, s1, acc)
            z -= back * acc
            tl.store(zq_ptr + rows[:, None] * H + cols[None, :], z, mask=both)
        logits = _dot3(tl.maximum(z, 0.0), w2 * ws, logits)
    logits *= 1.0 / ws
    b2 = tl.load(b2_ptr + j * CP + cls)
    if not FIRST:
        b2 -= gamma * tl.load(moved_ptr + H * CP + cls)
    logits += b2[None, :]
    e = tl.exp(logits - tl.max(logits, 1)[:, None])
    y = tl.load(y_ptr + at + rows, mask=ok, other=0)
    share = tl.where(ok, 1.0 / n.to(tl.float32), 0.0)
    p = (e / tl.sum(e, 1)[:, None] - tl.where(cls[None, :] == y[:, None], 1.0, 0.0)) * share[:, None]
    tl.store(grad_ptr + H * CP + cls, tl.sum(p, 0))
    p *= ps
    if LAST:
        parts_ptr += tl.load(to_ptr + i) * 2 * H
    whole = tl.load(a_ptr + i) * (tl.load(us_ptr) / ss)
    tl.debug_barrier()
    for t in range(NH):
        cols = t * BH + tl.arange(0, BH)
        hc = cols < H
        both = ok[:, None] & hc[None, :]
        tail = cols[:, None] * CP + cls[None, :]
        w2 = tl.load(w2_ptr + tail, mask=hc[:, None], other=0.0)
        if FIRST:
            z = zi * tl.load(z_ptr + rows[:, None] * zs + cols[None, :], mask=both, other=0.0)
        else:
            w2 -= gamma * tl.load(moved_ptr + tail, mask=hc[:, None], other=0.0)
            z = tl.load(zq_ptr + rows[:, None] * H + cols[None, :], mask=both, other=0.0)
        gw = _dot3(tl.trans(tl.maximum(z, 0.0)), p, tl.zeros([BH, CP], tl.float32)) * (1.0 / ps)
        tl.store(grad_ptr + tail, gw, mask=hc[:, None])
        d = _dot3(p, tl.trans(w2 * ws), tl.zeros([BR, BH], tl.float32)) * (1.0 / (ps * ws))
        d = tl.where(z > 0.0, d, 0.0)
        own = rows[:, None] * H + cols[None, :]
        d *= ss
        if not FIRST:
            d += tl.load(old_hi + own, mask=both, other=0.0).to(tl.float32)
            d += tl.load(old_lo + own, mask=both, other=0.0).to(tl.float32)
        if LAST:  # the sum, weighted, at the client's place in cluster order
            d *= whole
            to = rows[:, None] * (2 * H) + cols[None, :]
            hi = d.to(tl.float16)
            tl.store(parts_ptr + to, hi, mask=both)
            tl.store(parts_ptr + H + to, (d - hi.to(tl.float32)).to(tl.float16), mask=both)
        else:
            hi = d.to(tl.float16)
            tl.store(new_hi + own, hi, mask=both)
            tl.store(new_lo + own, (d - hi.to(tl.float32)).to(tl.float16), mask=both)


@triton.jit
def _step(
    client_ptr, first_ptr, size_ptr, z_ptr, g_hi, g_lo, w2_ptr, b2_ptr, y_ptr, id_ptr, start_ptr, to_ptr, a_ptr, gram_ptr,
    old_hi, old_lo, new_hi, new_lo, moved_ptr, grad_ptr, zq_ptr, parts_ptr, ss_ptr, gs_ptr, zi_ptr, ws_ptr, ps_ptr, us_ptr, gamma_ptr,
    zs: tl.constexpr, H: tl.constexpr, CP: tl.constexpr, BR: tl.constexpr, SHORT: tl.constexpr, BH: tl.constexpr,
    BK: tl.constexpr, STAGES: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """One local step of a tile: BR samples of one client, or SHORT where no more are left."""
    pid = tl.program_id(0).to(tl.int64)
    i = tl.load(client_ptr + pid).to(tl.int64)
    first = tl.load(first_ptr + pid)
    n = tl.load(size_ptr + i)
    if n - first > SHORT:
        _tile(
            pid, i, first, n, z_ptr, g_hi, g_lo, w2_ptr, b2_ptr, y_ptr, id_ptr, start_ptr, to_ptr, a_ptr, gram_ptr, old_hi, old_lo, new_hi, new_lo,
            moved_ptr, grad_ptr, zq_ptr, parts_ptr, ss_ptr, gs_ptr, zi_ptr, ws_ptr, ps_ptr, us_ptr, gamma_ptr, zs, H, CP, BR, BH, BK, STAGES, FIRST, LAST,
        )  # fmt: skip
    else:
        _tile(
            pid, i, first, n, z_ptr, g_hi, g_lo, w2_ptr, b2_ptr, y_ptr, id_ptr, start_ptr, to_ptr, a_ptr, gram_ptr, old_hi, old_lo, new_hi, new_lo,
            moved_ptr, grad_ptr, zq_ptr, parts_ptr, ss_ptr, gs_ptr, zi_ptr, ws_ptr, ps_ptr, us_ptr, gamma_ptr, zs, H, CP, SHORT, BH, BK, STAGES, FIRST, LAST,
        )  # fmt: skip


@triton.jit
def _add_tiles(values_ptr, tile_ptr, size_ptr, total_ptr, W: tl.constexpr, BR: tl.constexpr, BLOCK: tl.constexpr, MORE: tl.constexpr):  # fmt: skip
    """The sum of what the tiles of a client have, always in the same order; MORE: added to what was there."""
    i = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = cols < W
    tile = tl.load(tile_ptr + i).to(tl.int64)
    n = tl.load(size_ptr + i)
    acc = tl.load(total_ptr + i * W + cols, mask=ok, other=0.0) if MORE else tl.zeros([BLOCK], tl.float32)
    for t in range(tl.cdiv(n, BR)):
        acc += tl.load(values_ptr + (tile + t) * W + cols, mask=ok, other=0.0)
    tl.store(total_ptr + i * W + cols, acc, mask=ok)


def add_tiles(values: Tensor, tiles: Tiles, total: Tensor, *, more: bool) -> Tensor:
    """values [tiles, w] -> total [p, w], the sum by client; more: beside what it has."""
    w = values.shape[1]
    block = min(1024, triton.next_power_of_2(w))
    grid = (len(total), triton.cdiv(w, block))
    _add_tiles[grid](values, tiles.tile, tiles.size, total, w, ROWS, block, more, num_warps=4)
    return total


def local_steps(
    z: Tensor, zi: Tensor, grams: tuple[Tensor, Tensor], tiles: Tiles, w2: Tensor, b2: Tensor, y: Tensor,
    identity: Tensor, to: Tensor, a: Tensor, gamma: Tensor, tau: int, take,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """All local steps of all clients: a S as two fp16 parts [rows, 2 h], each client's from row `to` on, times the
    power of two us; us; and the summed gradients of every client's last layer, [p, c, h] and [p, c].

    z [rows, k h] is only read, and multiplied by the number zi. |dF/dz| <= 2 max|W2| / n, so S is below
    2 tau max|W2| / n; a client's ss brings that bound to 2^11, 32 times under fp16's largest number: an
    overflow would show as inf, not as a wrong number. us does so for the sums of all clients.
    """
    rows, p, (k, c, h) = len(y), len(tiles.size), w2.shape
    bk, count = 32, len(tiles.client)
    cp = max(16, triton.next_power_of_2(c))
    s = [[take(f"s{i}{part}", (rows, h), torch.float16) for part in "hl"] for i in range(2)]
    moved, grad = take("moved", (p, (h + 1) * cp)), take("grad", (count, (h + 1) * cp))
    zq, parts = take("zq", (rows, h)), take("parts", (rows, 2 * h), torch.float16)
    w2t = torch.zeros(k, h, cp, device=z.device)
    w2t[:, :, :c] = w2.transpose(1, 2)
    b2p = torch.full((k, cp), float("-inf"), device=z.device)
    b2p[:, :c] = b2
    share = 1 / tiles.size.float()
    bound = 2 * tau * w2.abs().amax() * share
    ss, ps = powers_of_two(bound, 2048.0), powers_of_two(share, 512.0)
    us, ws = powers_of_two((bound * a.abs()).amax(), 2048.0), powers_of_two(w2.abs().amax(), 512.0)
    moved.zero_()
    for q in range(tau):
        old, new = s[(q + 1) % 2], s[q % 2]
        _step[(count,)](
            tiles.client, tiles.first, tiles.size, z, *grams, w2t, b2p, y, identity, tiles.start, to, a, tiles.gram, *old, *new,
            moved, grad, zq, parts, ss, tiles.scale, zi, ws, ps, us, gamma, z.stride(0), h, cp, ROWS, 16, TILE["hidden"], bk,
            2 if tiles.largest <= 64 else TILE["stages"], q == 0, q == tau - 1,
            num_warps=TILE["warps"], num_stages=1, maxnreg=168 if tiles.largest <= 128 else None,
        )  # fmt: skip
        add_tiles(grad, tiles, moved, more=True)
    last = moved.view(p, h + 1, cp)[..., :c]
    return parts, us, last[:, :h].transpose(1, 2), last[:, h]


def powers_of_two(t: Tensor, top: float) -> Tensor:
    """The powers of two (no synchronisation) that bring each number of t >= 0 to between top/2 and top."""
    return torch.exp2(torch.floor(torch.log2(top / t.clamp(min=1e-30)))).clamp(max=2.0**60)
