"""Triton kernels of the CUDA path (fused.py): hidden layers between the first and the last one.

Here every client has its own weights [out, in], as fp16 parts; products are those of fused_kernels.py.
Imported only where Triton is there.
"""
# mypy: ignore-errors
# ruff: noqa

from __future__ import annotations

import triton
import triton.language as tl

from ifca.engines.cuda.fused_kernels import add_logits, store_halves


@triton.jit
def _layer(
    client_ptr, first_ptr, size_ptr, start_ptr, a_hi, a_lo, w_hi, w_lo, b_ptr, ws_ptr, r_hi, r_lo,
    o_hi, o_lo, who_ptr, os_ptr, part_ptr, total,
    IN: tl.constexpr, OUT: tl.constexpr, CP: tl.constexpr, BR: tl.constexpr, BH: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr, LAST: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    """relu(A W' + b) of BR samples and BH hidden units, to r; LAST: and what they add to the logits."""
    NH: tl.constexpr = (OUT + BH - 1) // BH
    pid = tl.program_id(0) // NH
    t = tl.program_id(0) % NH
    i = tl.load(client_ptr + pid).to(tl.int64)
    n = tl.load(size_ptr + i)
    at = tl.load(start_ptr + i)
    rows = tl.load(first_ptr + pid) + tl.arange(0, BR)
    cols = t * BH + tl.arange(0, BH)
    cls = tl.arange(0, CP)
    ok = rows < n
    hc = cols < OUT
    a_hi += at * IN
    a_lo += at * IN
    model = tl.load(who_ptr + i)
    w_hi += model * (OUT * IN)
    w_lo += model * (OUT * IN)
    acc = tl.zeros([BR, BH], tl.float32)
    for kk in tl.range(0, max(IN, BK + 1), BK, num_stages=STAGES):
        mid = kk + tl.arange(0, BK)
        place = rows[:, None] * IN + mid[None, :]
        own = cols[:, None] * IN + mid[None, :]
        inside = ok[:, None] & (mid[None, :] < IN)
        there = hc[:, None] & (mid[None, :] < IN)
        a1 = tl.load(a_hi + place, mask=inside, other=0.0)
        w1 = tl.trans(tl.load(w_hi + own, mask=there, other=0.0))
        if LOW:
            a2 = tl.load(a_lo + place, mask=inside, other=0.0)
            w2 = tl.trans(tl.load(w_lo + own, mask=there, other=0.0))
        acc = tl.dot(a1, w1, acc)
        if LOW:
            acc = tl.dot(a1, w2, acc)
            acc = tl.dot(a2, w1, acc)
    z = acc / tl.load(ws_ptr + i) + tl.load(b_ptr + model * OUT + cols, mask=hc, other=0.0)[None, :]
    own = rows[:, None] * OUT + cols[None, :]
    hi, lo = store_halves(
        tl.maximum(z, 0.0), r_hi + at * OUT, r_lo + at * OUT, own, ok[:, None] & hc[None, :], LOW
    )
    if LAST:
        part_ptr += (t * total + at) * CP
        add_logits(
            hi, lo, o_hi, o_lo, model * (OUT * CP), cols, hc, cls, os_ptr + i, part_ptr, rows, ok, CP, LOW
        )


@triton.jit
def _layer_backward(
    client_ptr, first_ptr, size_ptr, start_ptr, d_hi, d_lo, ds_ptr, w_hi, w_lo, who_ptr, ws_ptr, r_hi, r_lo, s_hi, s_lo,
    ss_ptr, parts_ptr, to_ptr, a_ptr, us_ptr,
    IN: tl.constexpr, OUT: tl.constexpr, BR: tl.constexpr, BH: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
    ADD: tl.constexpr, LAST: tl.constexpr, LOW: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """From D = dF/dz of a layer to that of the one before, of BR samples and BH of its units.

    It goes to s in units of ss, ADD: is added to what is there; LAST: the sum goes, weighted, to the client's
    place in cluster order.
    """
    NH: tl.constexpr = (IN + BH - 1) // BH
    pid = tl.program_id(0) // NH
    i = tl.load(client_ptr + pid).to(tl.int64)
    n = tl.load(size_ptr + i)
    at = tl.load(start_ptr + i)
    rows = tl.load(first_ptr + pid) + tl.arange(0, BR)
    cols = tl.program_id(0) % NH * BH + tl.arange(0, BH)
    ok = rows < n
    hc = cols < IN
    both = ok[:, None] & hc[None, :]
    model = tl.load(who_ptr + i)
    w_hi += model * (OUT * IN)
    w_lo += model * (OUT * IN)
    d_hi += at * OUT
    d_lo += at * OUT
    acc = tl.zeros([BR, BH], tl.float32)
    for kk in tl.range(0, max(OUT, BK + 1), BK, num_stages=STAGES):
        mid = kk + tl.arange(0, BK)
        place = rows[:, None] * OUT + mid[None, :]
        own = mid[:, None] * IN + cols[None, :]
        inside = ok[:, None] & (mid[None, :] < OUT)
        there = (mid[:, None] < OUT) & hc[None, :]
        d1 = tl.load(d_hi + place, mask=inside, other=0.0)
        w1 = tl.load(w_hi + own, mask=there, other=0.0)
        if LOW:
            d2 = tl.load(d_lo + place, mask=inside, other=0.0)
            w2 = tl.load(w_lo + own, mask=there, other=0.0)
        acc = tl.dot(d1, w1, acc)
        if LOW:
            acc = tl.dot(d1, w2, acc)
            acc = tl.dot(d2, w1, acc)
    own = rows[:, None] * IN + cols[None, :]
    above = tl.load(r_hi + at * IN + own, mask=both, other=0.0) > 0.0
    if LOW:
        above = above | (tl.load(r_lo + at * IN + own, mask=both, other=0.0) > 0.0)
    s_hi += at * IN
    s_lo += at * IN
    ss = tl.load(ss_ptr + i)
    d = tl.where(above, acc * (ss / (tl.load(ds_ptr + i) * tl.load(ws_ptr + i))), 0.0)
    if ADD:
        d += tl.load(s_hi + own, mask=both, other=0.0).to(tl.float32)
        if SUMS:
            d += tl.load(s_lo + own, mask=both, other=0.0).to(tl.float32)
    if LAST:
        d *= tl.load(a_ptr + i) * (tl.load(us_ptr + i) / ss)
        W: tl.constexpr = 2 * IN if LOW else IN
        s_hi = parts_ptr + tl.load(to_ptr + i) * W
        s_lo = s_hi + IN
        own = rows[:, None] * W + cols[None, :]
    store_halves(d, s_hi, s_lo, own, both, LOW if LAST else SUMS)


@triton.jit
def _slope(
    size_ptr, start_ptr, d_hi, d_lo, ds_ptr, r_hi, r_lo, moved_ptr, of_bias_ptr, sent_ptr, bias_ptr, id_ptr, w_hi, w_lo, b_ptr,
    ws_ptr, gamma_ptr,
    IN: tl.constexpr, OUT: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
    FIRST: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    """M, the sum of a client's gradients D'A by BO x BI weights, and W_0 - gamma M as parts; likewise by biases."""
    i = tl.program_id(0).to(tl.int64)
    outs = tl.program_id(1) * BO + tl.arange(0, BO)
    cols = tl.program_id(2) * BI + tl.arange(0, BI)
    n = tl.load(size_ptr + i)
    at = tl.load(start_ptr + i)
    oc = outs < OUT
    ic = cols < IN
    both = oc[:, None] & ic[None, :]
    d_hi += at * OUT
    d_lo += at * OUT
    r_hi += at * IN
    r_lo += at * IN
    acc = tl.zeros([BO, BI], tl.float32)
    total = tl.zeros([BO], tl.float32)
    for kk in tl.range(0, tl.maximum(n, BK + 1), BK, num_stages=STAGES):
        rows = kk + tl.arange(0, BK)
        own = rows[:, None] * OUT + outs[None, :]
        seen = rows[:, None] * IN + cols[None, :]
        here = (rows[:, None] < n) & oc[None, :]
        there = (rows[:, None] < n) & ic[None, :]
        d1 = tl.load(d_hi + own, mask=here, other=0.0)
        r1 = tl.load(r_hi + seen, mask=there, other=0.0)
        if LOW:
            d2 = tl.load(d_lo + own, mask=here, other=0.0)
            r2 = tl.load(r_lo + seen, mask=there, other=0.0)
        acc = tl.dot(tl.trans(d1), r1, acc)
        total += tl.sum(d1.to(tl.float32), 0)
        if LOW:
            acc = tl.dot(tl.trans(d1), r2, acc)
            acc = tl.dot(tl.trans(d2), r1, acc)
            total += tl.sum(d2.to(tl.float32), 0)
    ds = tl.load(ds_ptr + i)
    gamma = tl.load(gamma_ptr)
    j = tl.load(id_ptr + i)
    place = outs[:, None] * IN + cols[None, :]
    whole = i * (OUT * IN)
    acc /= ds
    if not FIRST:
        acc += tl.load(moved_ptr + whole + place, mask=both, other=0.0)
    tl.store(moved_ptr + whole + place, acc, mask=both)
    now = tl.load(sent_ptr + j * (OUT * IN) + place, mask=both, other=0.0) - gamma * acc
    store_halves(now * tl.load(ws_ptr + i), w_hi + whole, w_lo + whole, place, both, LOW)
    if tl.program_id(2) == 0:
        total /= ds
        if not FIRST:
            total += tl.load(of_bias_ptr + i * OUT + outs, mask=oc, other=0.0)
        tl.store(of_bias_ptr + i * OUT + outs, total, mask=oc)
        bias = tl.load(bias_ptr + j * OUT + outs, mask=oc, other=0.0) - gamma * total
        tl.store(b_ptr + i * OUT + outs, bias, mask=oc)


@triton.jit
def _logit_loss(
    client_ptr, first_ptr, size_ptr, start_ptr, who_ptr, part_ptr, bias_ptr, y_ptr, out_ptr, j, k, total,
    CP: tl.constexpr, NH: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """What each tile adds to its client's mean loss under a model, whose logits are the sum of NH parts.

    It goes to place j of k.
    """
    pid = tl.program_id(0).to(tl.int64)
    i = tl.load(client_ptr + pid).to(tl.int64)
    n = tl.load(size_ptr + i)
    at = tl.load(start_ptr + i)
    rows = tl.load(first_ptr + pid) + tl.arange(0, BR)
    cls = tl.arange(0, CP)
    ok = rows < n
    own = (at + rows)[:, None] * CP + cls[None, :]
    logits = tl.zeros([BR, CP], tl.float32) + tl.load(bias_ptr + tl.load(who_ptr + i) * CP + cls)[None, :]
    for part in tl.static_range(NH):
        logits += tl.load(part_ptr + part * total.to(tl.int64) * CP + own, mask=ok[:, None], other=0.0)
    top = tl.max(logits, 1)
    lse = top + tl.log(tl.sum(tl.exp(logits - top[:, None]), 1))
    y = tl.load(y_ptr + at + rows, mask=ok, other=0)
    picked = tl.sum(tl.where(cls[None, :] == y[:, None], logits, 0.0), 1)
    loss = tl.sum(tl.where(ok, lse - picked, 0.0), 0) / tl.maximum(n, 1).to(tl.float32)
    tl.store(out_ptr + pid * k + j, loss)
