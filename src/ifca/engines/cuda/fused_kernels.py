"""Triton kernels of the CUDA path (fused.py): classifiers with one hidden ReLU layer.

Products are fp32-like: float32 operands as two fp16 parts (22 bits), float32 accumulation, or tf32x3; never
plain TF32. Imported only where Triton is there.
"""
# mypy: ignore-errors
# ruff: noqa

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ifca.engines.cuda.loss_kernel import row_losses as row_losses  # used by fused.py


TILE = {"rows": 64, "hidden": 64, "stages": 3, "warps": 4}  # measured best on an H200


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
    i, r, z_ptr, g_ptr, w2_ptr, b2_ptr, y_ptr, sw_ptr, id_ptr, pos_ptr, a_ptr,
    s_old, s_new, gw_old, gw_new, gb_old, gb_new, zq_ptr, parts_ptr, ss_ptr, gs_ptr, zi_ptr, ws_ptr, ps_ptr, gamma_ptr,
    part: tl.constexpr, gpart: tl.constexpr, gk: tl.constexpr, gr: tl.constexpr, zs: tl.constexpr, n: tl.constexpr, H: tl.constexpr, CP: tl.constexpr, NR: tl.constexpr, STEP: tl.constexpr, BR: tl.constexpr,
    BH: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """One local step of BR samples of client i, from sample r STEP on, in two passes over tiles of BH hidden units.

    Z = Z_0 - gamma G S and W2 = W2_0 - gamma GW are formed on the fly from the sums S and GW so far. Old and new sums are
    two buffers (other programs of the same client still read the old ones); GW is one partial sum per row tile.
    zq is the program's own scratch for Z between the passes. G and S are each two fp16 matrices (hi + lo, 22
    bits, scaled by powers of two), so that G S is three tensor-core products straight from memory.
    """
    j = tl.load(id_ptr + i)
    cls = tl.arange(0, CP)
    rows = r * STEP + tl.arange(0, BR)
    ok = rows < n
    z_ptr += i * n * zs + j * H
    g_ptr += i * gr * gk
    s_old += i * n * H
    zq_ptr += i * n * H
    w2_ptr += j * H * CP
    gws_ptr = gw_old + i * NR * H * CP
    gw_old += (i * NR + r) * H * CP
    gamma = tl.load(gamma_ptr)
    NH: tl.constexpr = (H + BH - 1) // BH
    ss = tl.load(ss_ptr)
    zi = tl.load(zi_ptr)
    back = gamma / (ss * tl.load(gs_ptr))
    ws = tl.load(ws_ptr)  # powers of two that bring W2 and p into fp16's range
    ps = tl.load(ps_ptr)
    logits = tl.zeros([BR, CP], tl.float32)
    for t in range(NH):
        cols = t * BH + tl.arange(0, BH)
        hc = cols < H
        both = ok[:, None] & hc[None, :]
        tail = cols[:, None] * CP + cls[None, :]
        z = zi * tl.load(z_ptr + rows[:, None] * zs + cols[None, :], mask=both, other=0.0)
        w2 = tl.load(w2_ptr + tail, mask=hc[:, None], other=0.0)
        if not FIRST:
            for rr in tl.static_range(NR):
                w2 -= gamma * tl.load(gws_ptr + rr * H * CP + tail, mask=hc[:, None], other=0.0)
            acc = tl.zeros([BR, BH], tl.float32)
            for kk in tl.range(0, n, BK, num_stages=STAGES):  # G is padded with zeros to [gr, gk]
                mid = kk + tl.arange(0, BK)
                gp = g_ptr + rows[:, None] * gk + mid[None, :]
                sp = s_old + mid[:, None] * H + cols[None, :]
                sm = (mid[:, None] < n) & hc[None, :]
                g_hi = tl.load(gp)
                s_hi = tl.load(sp, mask=sm, other=0.0)
                g_lo = tl.load(gp + gpart)
                s_lo = tl.load(sp + part, mask=sm, other=0.0)
                acc = tl.dot(g_hi, s_hi, acc)
                acc = tl.dot(g_hi, s_lo, acc)
                acc = tl.dot(g_lo, s_hi, acc)
            z -= back * acc
            tl.store(zq_ptr + rows[:, None] * H + cols[None, :], z, mask=both)
        logits = _dot3(tl.maximum(z, 0.0), w2 * ws, logits)
    logits *= 1.0 / ws
    b2 = tl.load(b2_ptr + j * CP + cls)
    if not FIRST:
        for rr in tl.static_range(NR):
            b2 -= gamma * tl.load(gb_old + (i * NR + rr) * CP + cls)
    logits += b2[None, :]
    e = tl.exp(logits - tl.max(logits, 1)[:, None])
    y = tl.load(y_ptr + i * n + rows, mask=ok, other=0)
    sw = tl.load(sw_ptr + i * n + rows, mask=ok, other=0.0)
    p = (e / tl.sum(e, 1)[:, None] - tl.where(cls[None, :] == y[:, None], 1.0, 0.0)) * sw[:, None]
    gb = tl.sum(p, 0)
    if not FIRST:
        gb += tl.load(gb_old + (i * NR + r) * CP + cls)
    tl.store(gb_new + (i * NR + r) * CP + cls, gb)
    gw_new += (i * NR + r) * H * CP
    s_new += i * n * H
    p *= ps
    parts_ptr += tl.load(pos_ptr + i) * n * 2 * H
    weight = tl.load(a_ptr + i)
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
            for rr in tl.static_range(NR):
                w2 -= gamma * tl.load(gws_ptr + rr * H * CP + tail, mask=hc[:, None], other=0.0)
            z = tl.load(zq_ptr + rows[:, None] * H + cols[None, :], mask=both, other=0.0)
        gw = _dot3(tl.trans(tl.maximum(z, 0.0)), p, tl.zeros([BH, CP], tl.float32)) * (1.0 / ps)
        if not FIRST:
            gw += tl.load(gw_old + tail, mask=hc[:, None], other=0.0)
        tl.store(gw_new + tail, gw, mask=hc[:, None])
        d = _dot3(p, tl.trans(w2 * ws), tl.zeros([BR, BH], tl.float32)) * (1.0 / (ps * ws))
        d = tl.where(z > 0.0, d, 0.0)
        own = rows[:, None] * H + cols[None, :]
        d *= ss
        if not FIRST:
            d += tl.load(s_old + own, mask=both, other=0.0).to(tl.float32) + tl.load(
                s_old + part + own, mask=both, other=0.0
            ).to(tl.float32)
        if LAST:  # the sum, weighted, at the client's place in cluster order
            d *= weight
            to = parts_ptr + rows[:, None] * (2 * H) + cols[None, :]
            gap: tl.constexpr = H
        else:
            to = s_new + own
            gap: tl.constexpr = part
        hi = d.to(tl.float16)
        tl.store(to, hi, mask=both)
        tl.store(to + gap, (d - hi.to(tl.float32)).to(tl.float16), mask=both)


@triton.jit
def _step(
    z_ptr, g_ptr, w2_ptr, b2_ptr, y_ptr, sw_ptr, id_ptr, pos_ptr, a_ptr,
    s_old, s_new, gw_old, gw_new, gb_old, gb_new, zq_ptr, parts_ptr, ss_ptr, gs_ptr, zi_ptr, ws_ptr, ps_ptr, gamma_ptr,
    part: tl.constexpr, gpart: tl.constexpr, gk: tl.constexpr, gr: tl.constexpr, zs: tl.constexpr, n: tl.constexpr, H: tl.constexpr, CP: tl.constexpr, NR: tl.constexpr, BR: tl.constexpr,
    SHORT: tl.constexpr, BH: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """One local step of a row tile of one client: BR samples, and SHORT in the last of the NR tiles."""
    pid = tl.program_id(0)
    i = (pid // NR).to(tl.int64)
    r = pid % NR
    if SHORT == BR or r < NR - 1:
        _tile(
            i, r, z_ptr, g_ptr, w2_ptr, b2_ptr, y_ptr, sw_ptr, id_ptr, pos_ptr, a_ptr, s_old, s_new, gw_old, gw_new, gb_old, gb_new,
            zq_ptr, parts_ptr, ss_ptr, gs_ptr, zi_ptr, ws_ptr, ps_ptr, gamma_ptr, part, gpart, gk, gr, zs, n, H, CP, NR, BR, BR, BH, BK, STAGES, FIRST, LAST,
        )  # fmt: skip
    else:
        _tile(
            i, r, z_ptr, g_ptr, w2_ptr, b2_ptr, y_ptr, sw_ptr, id_ptr, pos_ptr, a_ptr, s_old, s_new, gw_old, gw_new, gb_old, gb_new,
            zq_ptr, parts_ptr, ss_ptr, gs_ptr, zi_ptr, ws_ptr, ps_ptr, gamma_ptr, part, gpart, gk, gr, zs, n, H, CP, NR, BR, SHORT, BH, BK, STAGES, FIRST, LAST,
        )  # fmt: skip


def local_steps(
    z: Tensor, zi: Tensor, g: tuple[Tensor, Tensor], w2: Tensor, b2: Tensor, y: Tensor, w: Tensor,
    identity: Tensor, pos: Tensor, a: Tensor, gamma: Tensor, tau: int, take,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """All local steps of all clients: a S as two fp16 parts [m n, 2 h] at rows pos n, times the power of two
    ss; ss; and the summed gradients of every client's last layer, [m, c, h] and [m, c].

    z [m n, k h] is only read, and multiplied by the number zi. |dF/dz| <= 2 w max|W2|, so S is below
    2 tau max w max|W2|; ss brings that bound to 2^11, 32 times under fp16's largest number: an overflow would
    show as inf, not as a wrong number.
    """
    (m, n), (k, c, h) = y.shape, w2.shape
    gp, gs = g
    br, bh, bk = TILE["rows"], TILE["hidden"], 32
    assert n > bk  # seen with Triton 3.6: a K loop of one trip ends in an illegal memory access
    cp, nr = max(16, triton.next_power_of_2(c)), triton.cdiv(n, br)
    s = take("s", (2, 2, m, n, h), torch.float16)
    gw, gb = take("gw", (2, m * nr, h, cp)), take("gb", (2, m * nr, cp))
    zq, parts = take("zq", (m, n, h)), take("parts", (m * n, 2 * h), torch.float16)
    w2t = torch.zeros(k, h, cp, device=z.device)
    w2t[:, :, :c] = w2.transpose(1, 2)
    b2p = torch.full((k, cp), float("-inf"), device=z.device)
    b2p[:, :c] = b2
    ss = power_of_two(2 * tau * w.amax() * w2.abs().amax() * a.abs().amax().clamp(min=1), 2048.0)
    ws, ps = power_of_two(w2, 512.0), power_of_two(w, 512.0)
    for q in range(tau):
        o, t = (q + 1) % 2, q % 2
        _step[(m * nr,)](
            z, gp, w2t, b2p, y, w, identity, pos, a, s[o], s[t], gw[o], gw[t], gb[o], gb[t], zq, parts, ss, gs,
            zi, ws, ps, gamma, m * n * h, gp.stride(0), gp.shape[3], gp.shape[2], z.stride(0), n, h, cp, nr, br,
            last_rows(n, br), bh, bk, 2 if n <= 64 else TILE["stages"], q == 0, q == tau - 1,
            num_warps=TILE["warps"], num_stages=1, maxnreg=168 if n <= 128 else None,
        )  # fmt: skip
    t = (tau - 1) % 2
    return (
        parts,
        ss,
        gw[t].view(m, nr, h, cp)[..., :c].sum(1).transpose(1, 2),
        gb[t].view(m, nr, cp)[..., :c].sum(1),
    )


def last_rows(n: int, rows: int) -> int:
    """Rows of a client's last tile: where few are left, it is not padded to a whole one."""
    return min(rows, max(16, triton.next_power_of_2(n % rows))) if n > rows and n % rows else rows


def split_gram(g: Tensor, scale: Tensor, n: int, out: Tensor) -> None:
    """Some clients' Gram matrices as hi and lo fp16 parts into out [2, b, rows, columns], zero beyond n."""
    scaled = g * scale
    out[0, :, :n, :n] = scaled
    out[1, :, :n, :n] = scaled - out[0, :, :n, :n]


def gram_shape(n: int) -> tuple[int, int]:
    """Rows and columns of a padded Gram matrix."""
    return (-(-n // 128) * 128 if n > 64 else 64), -(-n // 64) * 64


def power_of_two(t: Tensor, top: float) -> Tensor:
    """The power of two (a tensor, no synchronisation) that brings max |t| to between top/2 and top."""
    return torch.exp2(torch.floor(torch.log2(top / t.abs().amax().clamp(min=1e-30)))).clamp(max=2.0**60)
