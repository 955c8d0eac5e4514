"""Triton kernels of the CUDA path (fused.py): the first hidden layer and the last one, clients of any size.

Rows of samples stand one client after the other, without padding. A program works on a tile: some samples of
one client and some of its hidden units. A local step is two launches, whose programs need nothing of each
other: one ends with what each tile adds to the logits, the other begins with their sum. Products are fp32-like
(LOW): float32 operands as two fp16 parts (22 bits), float32 accumulation; where the user asks for TF32, as one.
Imported only where Triton is there.
"""
# mypy: ignore-errors
# ruff: noqa

from __future__ import annotations

import triton
import triton.language as tl

from ifca.engines.cuda.fused_rows import PADDED

WIDE = tl.constexpr(PADDED)


@triton.jit
def store_halves(value, hi_ptr, lo_ptr, at, mask, LOW: tl.constexpr):
    """A float32 tile as two fp16 parts, which are given back; not LOW: as one."""
    hi = value.to(tl.float16)
    lo = hi
    tl.store(hi_ptr + at, hi, mask=mask)
    if LOW:
        lo = (value - hi.to(tl.float32)).to(tl.float16)
        tl.store(lo_ptr + at, lo, mask=mask)
    return hi, lo


@triton.jit
def add_logits(
    hi, lo, w_hi, w_lo, wat, cols, hc, cls, ws_ptr, part_ptr, rows, ok, CP: tl.constexpr, LOW: tl.constexpr
):
    """What some of the last hidden units, as fp16 parts, add to the logits."""
    tail = cols[:, None] * CP + cls[None, :]
    w1 = tl.load(w_hi + wat + tail, mask=hc[:, None], other=0.0)
    logits = tl.dot(hi, w1)
    if LOW:
        logits = tl.dot(hi, tl.load(w_lo + wat + tail, mask=hc[:, None], other=0.0), logits)
        logits = tl.dot(lo, w1, logits)
    logits /= tl.load(ws_ptr)
    tl.store(part_ptr + rows[:, None] * CP + cls[None, :], logits, mask=ok[:, None])


@triton.jit
def _forward(
    client_ptr, first_ptr, size_ptr, start_ptr, z_ptr, zat_ptr, g_hi, g_lo, gram_ptr, s_hi, s_lo, r_hi, r_lo, ss_ptr, gs_ptr,
    zi_ptr, gamma_ptr, w_hi, w_lo, who_ptr, ws_ptr, part_ptr, total,
    zs: tl.constexpr, H: tl.constexpr, CP: tl.constexpr, BR: tl.constexpr, BH: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    """relu(Z), Z = Z_0 - gamma G S, of BR samples and BH hidden units, to r; and what they add to the logits.

    A first step has no S. G S is three tensor-core products straight from memory (LOW; else one). LAST: no hidden
    layer follows.
    """
    NH: tl.constexpr = (H + BH - 1) // BH
    pid = tl.program_id(0) // NH
    t = tl.program_id(0) % NH
    i = tl.load(client_ptr + pid).to(tl.int64)
    first = tl.load(first_ptr + pid)
    n = tl.load(size_ptr + i)
    at = tl.load(start_ptr + i)
    rows = first + tl.arange(0, BR)
    cols = t * BH + tl.arange(0, BH)
    cls = tl.arange(0, CP)
    ok = rows < n
    hc = cols < H
    both = ok[:, None] & hc[None, :]
    z_ptr += tl.load(zat_ptr + i)
    # Asked for here, it arrives during the products.
    z = tl.load(z_ptr + rows[:, None] * zs + cols[None, :], mask=both, other=0.0)
    if not FIRST:
        gk = tl.multiple_of((n + WIDE - 1) // WIDE * WIDE, WIDE)  # G is padded with zeros to [gk, gk]
        begin = tl.multiple_of(tl.load(gram_ptr + i), WIDE)
        g_hi += begin
        g_lo += begin
        s_hi += at * H
        s_lo += at * H
        acc = tl.zeros([BR, BH], tl.float32)
        # Seen with Triton 3.6: a loop of one trip ends in an illegal memory access.
        for kk in tl.range(0, tl.maximum(n, BK + 1), BK, num_stages=STAGES):
            mid = kk + tl.arange(0, BK)
            place = rows[:, None] * gk + mid[None, :]
            own = mid[:, None] * H + cols[None, :]
            there = (mid[:, None] < n) & hc[None, :]
            inside = ok[:, None] & (mid[None, :] < gk)
            g1 = tl.load(g_hi + place, mask=inside, other=0.0)
            s1 = tl.load(s_hi + own, mask=there, other=0.0)
            if LOW:
                g2 = tl.load(g_lo + place, mask=inside, other=0.0)
                s2 = tl.load(s_lo + own, mask=there, other=0.0)
            acc = tl.dot(g1, s1, acc)
            if LOW:
                acc = tl.dot(g1, s2, acc)
                acc = tl.dot(g2, s1, acc)
    z = z.to(tl.float32) * tl.load(zi_ptr + i)
    if not FIRST:
        z -= tl.load(gamma_ptr) / (tl.load(ss_ptr + i) * tl.load(gs_ptr + i)) * acc
    z = tl.maximum(z, 0.0)  # what follows is store_halves; called here, registers would spill (Triton 3.6)
    hi = z.to(tl.float16)
    lo = hi
    own = rows[:, None] * H + cols[None, :]
    tl.store(r_hi + at * H + own, hi, mask=both)
    if LOW:
        lo = (z - hi.to(tl.float32)).to(tl.float16)
        tl.store(r_lo + at * H + own, lo, mask=both)
    if LAST:
        part_ptr += (t * total + at) * CP
        wat = tl.load(who_ptr + i) * (H * CP)
        add_logits(hi, lo, w_hi, w_lo, wat, cols, hc, cls, ws_ptr + i, part_ptr, rows, ok, CP, LOW)


@triton.jit
def _signal(
    whose_ptr, size_ptr, part_ptr, bias_ptr, who_ptr, y_ptr, p_hi, p_lo, ps_ptr, total,
    CP: tl.constexpr, NH: tl.constexpr, BR: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    """dF/dlogits of BR samples, whosever they are: (softmax - one-hot) / n, times a power of two of the client."""
    rows = tl.program_id(0) * BR + tl.arange(0, BR)
    cls = tl.arange(0, CP)
    i = tl.load(whose_ptr + rows, mask=rows < total, other=0)
    n = tl.load(size_ptr + i)
    ok = (rows < total) & (n > 0)
    own = rows.to(tl.int64)[:, None] * CP + cls[None, :]
    logits = tl.load(bias_ptr + tl.load(who_ptr + i)[:, None] * CP + cls[None, :])
    for part in tl.static_range(NH):
        logits += tl.load(part_ptr + part * total.to(tl.int64) * CP + own, mask=ok[:, None], other=0.0)
    e = tl.exp(logits - tl.max(logits, 1)[:, None])
    y = tl.load(y_ptr + rows, mask=ok, other=0)
    share = tl.load(ps_ptr + i) / tl.maximum(n, 1).to(tl.float32)
    p = (e / tl.sum(e, 1)[:, None] - tl.where(cls[None, :] == y[:, None], 1.0, 0.0)) * share[:, None]
    store_halves(p, p_hi, p_lo, own, ok[:, None], LOW)


@triton.jit
def _backward(
    client_ptr, first_ptr, size_ptr, start_ptr, r_hi, r_lo, s_hi, s_lo, w_hi, w_lo, who_ptr, ws_ptr, p_hi, p_lo, ps_ptr,
    grad_ptr, ss_ptr, parts_ptr, to_ptr, a_ptr, us_ptr,
    H: tl.constexpr, CP: tl.constexpr, BR: tl.constexpr, BH: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
    LOW: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """From dF/dlogits to dF/dz of BR samples and BH hidden units, which is added to S.

    The tile's own gradient by W2 and, in a last row, by b2 goes to grad. After the last step S, weighted, goes to
    the client's place in cluster order. SUMS: S has two parts, LOW: so has all else.
    """
    pid = (tl.program_id(0) // ((H + BH - 1) // BH)).to(tl.int64)
    t = tl.program_id(0) % ((H + BH - 1) // BH)
    i = tl.load(client_ptr + pid).to(tl.int64)
    first = tl.load(first_ptr + pid)
    n = tl.load(size_ptr + i)
    at = tl.load(start_ptr + i)
    rows = first + tl.arange(0, BR)
    cols = t * BH + tl.arange(0, BH)
    cls = tl.arange(0, CP)
    ok = rows < n
    hc = cols < H
    both = ok[:, None] & hc[None, :]
    own = rows[:, None] * H + cols[None, :]
    seen = rows[:, None] * CP + cls[None, :]
    tail = cols[:, None] * CP + cls[None, :]
    wat = tl.load(who_ptr + i) * (H * CP)
    p1 = tl.load(p_hi + at * CP + seen, mask=ok[:, None], other=0.0)
    w1 = tl.load(w_hi + wat + tail, mask=hc[:, None], other=0.0)
    r1 = tl.load(r_hi + at * H + own, mask=both, other=0.0)
    if LOW:
        p2 = tl.load(p_lo + at * CP + seen, mask=ok[:, None], other=0.0)
        w2 = tl.load(w_lo + wat + tail, mask=hc[:, None], other=0.0)
        r2 = tl.load(r_lo + at * H + own, mask=both, other=0.0)
    s_hi += at * H
    s_lo += at * H
    if not FIRST:
        s1 = tl.load(s_hi + own, mask=both, other=0.0)
        if SUMS:
            s2 = tl.load(s_lo + own, mask=both, other=0.0)
    ps = tl.load(ps_ptr + i)
    ss = tl.load(ss_ptr + i)
    ws = tl.load(ws_ptr + i)
    grad_ptr += pid * (H + 1) * CP
    p = p1.to(tl.float32)
    gw = tl.dot(tl.trans(r1), p1)
    d = tl.dot(p1, tl.trans(w1))
    above = r1 > 0.0
    if LOW:
        p += p2.to(tl.float32)
        gw = tl.dot(tl.trans(r1), p2, gw)
        gw = tl.dot(tl.trans(r2), p1, gw)
        d = tl.dot(p1, tl.trans(w2), d)
        d = tl.dot(p2, tl.trans(w1), d)
        above = above | (r2 > 0.0)
    if t == 0:
        tl.store(grad_ptr + H * CP + cls, tl.sum(p, 0) / ps)
    tl.store(grad_ptr + tail, gw / ps, mask=hc[:, None])
    d = tl.where(above, d * (ss / (ps * ws)), 0.0)
    if not FIRST:
        d += s1.to(tl.float32)
        if SUMS:
            d += s2.to(tl.float32)
    if LAST:
        d *= tl.load(a_ptr + i) * (tl.load(us_ptr + i) / ss)
        W: tl.constexpr = 2 * H if LOW else H
        s_hi = parts_ptr + tl.load(to_ptr + i) * W
        s_lo = s_hi + H
        own = rows[:, None] * W + cols[None, :]
    store_halves(d, s_hi, s_lo, own, both, LOW if LAST else SUMS)


@triton.jit
def _update(
    grad_ptr, tile_ptr, size_ptr, moved_ptr, sent_ptr, id_ptr, w_hi, w_lo, bias_ptr, ws_ptr, gamma_ptr,
    H: tl.constexpr, CP: tl.constexpr, BR: tl.constexpr, BLOCK: tl.constexpr, FIRST: tl.constexpr,
    LOW: tl.constexpr,
):  # fmt: skip
    """M, the sum of a client's gradients by W2 and b2 (its tiles' in their order), and W2_0 - gamma M as parts."""
    i = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    W: tl.constexpr = (H + 1) * CP
    ok = cols < W
    tile = tl.load(tile_ptr + i).to(tl.int64)
    n = tl.load(size_ptr + i)
    acc = tl.zeros([BLOCK], tl.float32) if FIRST else tl.load(moved_ptr + i * W + cols, mask=ok, other=0.0)
    for t in range(tl.cdiv(n, BR)):
        acc += tl.load(grad_ptr + (tile + t) * W + cols, mask=ok, other=0.0)
    tl.store(moved_ptr + i * W + cols, acc, mask=ok)
    now = tl.load(sent_ptr + tl.load(id_ptr + i) * W + cols, mask=ok, other=0.0) - tl.load(gamma_ptr) * acc
    tl.store(bias_ptr + i * CP + cols - H * CP, now, mask=ok & (cols >= H * CP))
    now = tl.where(cols < H * CP, now, 0.0) * tl.load(ws_ptr + i)
    store_halves(now, w_hi, w_lo, i * H * CP + cols, cols < H * CP, LOW)
