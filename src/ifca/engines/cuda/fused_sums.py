"""What is left to add after the local steps of the fused round: sums by cluster, and sketches."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ifca.core.sketch import Sketch
from ifca.core.types import ClusterSum, Params
from ifca.engines.cuda.fused_rows import FusedRows, Tiles

SOME = 2**17  # rows of which sketches are made at once
Names = tuple[str, ...]
"""The parameters: weight and bias of each layer."""
Moved = tuple[Tensor, ...]
"""What local steps leave (fused_steps.local_steps)."""


class Turns(NamedTuple):
    """Who takes part in a round, and after them nobody, who weighs nothing (fused_rows.Tiles)."""

    x: Tensor  # [rows, ...]
    y: Tensor  # [rows]
    tiles: Tiles
    scale: Tensor  # [p + 1] of the Gram matrices
    a: Tensor  # [p + 1] weights
    known: Tensor  # [p + 1] the model that each was sent, or -1
    small: bool  # whether half a tile will do for each


class Judged(NamedTuple):
    """What the identity pass leaves on the GPU."""

    z: Tensor  # [rows, k h] or, of own models, [rows, h]; to be multiplied by its model's unit
    unit: Tensor  # [k]
    at: Tensor  # [p + 1] where each client's own begins, in numbers
    losses: Tensor  # [p + 1, k]
    identity: Tensor  # [p + 1]
    to: Tensor  # [p + 1] each client's first row in cluster order
    order: Tensor  # [rows] in cluster order
    members: Tensor  # [k] rows


def cluster_sum(
    data: FusedRows,
    names: Names,
    theta: Params,
    x: Tensor,
    turns: Turns,
    judged: Judged,
    moved: Moved,
    members: list[int],
    step: Tensor | None,
) -> ClusterSum:
    """Sum over i of s_ij w_i theta_i = (sum of w) theta_j - gamma (sum of w times what they moved by).

    x: in cluster order. Of option I (no step) what they moved by is the gradient, whose sum is all that is
    asked for.
    """
    parts, scale, *rest = moved
    (k, h, _), width, d = theta[names[0]].shape, data.width, data.d
    count = data.count
    slopes, at = torch.zeros(k, count * width, parts.shape[1], device=x.device), 0
    for j, rows in enumerate(members):
        if rows:
            product(x[at : at + rows].t(), parts[at : at + rows], slopes[j])
        at += rows
    first = slopes.view(k, count, width, -1, h).sum((1, 3)) * (data.unit[:, None] / scale[:, None, None])
    first = first.transpose(1, 2).double()  # [k, h, width]
    own = (judged.identity == torch.arange(k, device=x.device)[:, None]) * turns.a
    later = [(own @ part.flatten(1)).view(k, *part.shape[1:]).double() for part in rest]
    weight, total = own.double().sum(1), {}
    for name, move in zip(names, (first[:, :, :d], first[:, :, d], *later), strict=True):
        value = theta[name].double()
        total[name] = move
        if step is not None:
            total[name] = weight.reshape(-1, *[1] * (value.dim() - 1)) * value - step * move
    return ClusterSum(total, weight)


def sketches(
    sketch: Sketch,
    data: FusedRows,
    names: Names,
    turns: Turns,
    judged: Judged,
    moved: Moved,
    step: Tensor | None,
) -> Tensor:
    """Each client's update in a few numbers: [p, q], some rows at a time."""
    parts, scale, *moves = moved
    weight, bias, *later = names
    whose, rows = turns.tiles.whose, torch.arange(len(turns.y), device=scale.device)
    h, unit = len(sketch.left[weight]), scale[judged.identity] * turns.a
    place = torch.empty_like(rows).scatter_(0, judged.order, rows)
    seen = torch.empty(len(rows), sketch.width, device=scale.device)
    for at in range(0, len(rows), SOME):
        some = slice(at, at + SOME)
        s = parts[place[some]].float().view(-1, parts.shape[1] // h, h).sum(1)
        s /= unit[whose[some]][:, None]
        x = data.features(turns.x[some])
        seen[some] = (s @ sketch.left[weight]) * (x @ sketch.right[weight]) + s @ sketch.left[bias]
    clients = len(turns.a) - 1
    lengths = turns.tiles.size.long()
    lengths[clients] = len(rows) - lengths.sum()
    first = torch.segment_reduce(seen, "sum", lengths=lengths, axis=0)[:clients]
    rest = zip(later, moves, strict=True)
    found = first + sum(sketch.part(name, value[:clients]) for name, value in rest)
    return (found if step is None else -step * found).cpu()


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Of fp16 matrices, summed in float32; a CPU, on which this is tested, has no such product."""
    if not a.is_cuda:
        return out.copy_(a.float() @ b.float())
    return torch.mm(a, b, out=out) if out.dtype == a.dtype else torch.mm(a, b, out_dtype=out.dtype, out=out)
