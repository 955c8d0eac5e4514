"""A round of a classifier with hidden ReLU layers on one CUDA GPU: fp32-like accuracy, tensor-core speed.

A float32 matrix times a power of two is the sum of two fp16 matrices to 22 bits, so X W is one fp16 product
of X's and W's parts side by side (fused_rows.py), with exact products and float32 accumulation: no TF32
anywhere. Where the user asks for TF32 it is one part, of as many bits. The bias is one more column of X. The
local steps are Triton kernels (fused_steps.py), what is left to add is in fused_sums.py. The many small
launches are replayed as CUDA graphs: one for everybody, and one for each size, rounded up, that the
participants of a round have together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ifca.core import identity as core
from ifca.core.recipe import Recipe
from ifca.core.sketch import Sketch
from ifca.core.types import ClusterSum, Params, Task
from ifca.data import Clients
from ifca.engines.covered import not_fused
from ifca.engines.cuda.fused_place import Captured, Places, told
from ifca.engines.cuda.fused_rows import FusedRows, bytes_of, full_precision
from ifca.engines.cuda.fused_sums import Judged, Moved, Turns, cluster_sum, product, sketches
from ifca.engines.cuda.halves import powers_of_two
from ifca.engines.cuda.sent import Sent
from ifca.engines.precision import allows_tf32
from ifca.methods.aggregation import weighs

try:
    from ifca.engines.cuda import fused_steps as kernels
    from ifca.engines.cuda.loss_kernel import add_tiles, tile_losses
except ImportError:  # Triton is optional: without it the plain fast path runs on the GPU too
    kernels = None  # type: ignore[assignment]

HIGHEST_Z = 2.0**15  # half of fp16's largest number
Take = Callable[..., Tensor]
"""Memory by a name, a shape and a dtype."""


def applies(task: Task, recipe: Recipe, clients: Clients, device: torch.device) -> bool:
    """Averages of a classifier of Linear and ReLU layers, CUDA, Triton."""
    return kernels is not None and device.type == "cuda" and not not_fused(task, recipe, clients, device)


def bytes_needed(task: Task, recipe: Recipe, clients: Clients, theta: Params) -> int:
    """What a FusedRound holds: data and Gram matrices as parts, z of all models, sums and their gradients."""
    assert task.first is not None
    assert task.first.dense is not None
    (k, h, d), rows = theta[task.first.weight].shape, int(clients.offsets[-1])
    *hidden, last = (theta[name].shape[1:] for name, _ in task.first.dense)  # [out, in]
    tiles = int((-(-clients.sizes // 64)).sum())
    pixels = clients.x.dtype == torch.uint8
    held = bytes_of(clients.sizes, d, pixels=pixels)
    if recipe.stable_after is not None:  # once more, by cluster
        held += rows * (2 * (2 if pixels else 3) * (d + 8) + 20 * h)
    held += sum(8 * rows * out + 8 * len(clients) * out * wide for out, wide in hidden)
    return held + rows * (4 * k * h + 16 * h + 4 * (d + 8)) + (tiles + len(clients)) * 64 * (last[1] + 1)


class FusedRound:
    """All k models; made once for a run."""

    def __init__(self, task: Task, recipe: Recipe, clients: Clients, device: torch.device) -> None:
        assert task.first is not None
        assert task.first.bias is not None
        assert task.first.dense is not None
        self.recipe, self.dense = recipe, task.first.dense
        self.names = (task.first.weight, task.first.bias, *(name for pair in self.dense for name in pair))
        self.single = allows_tf32()  # one fp16 number for each has as many bits
        self.type = torch.float16 if self.single else torch.float32  # of z
        self.rows = FusedRows(clients, device, single=self.single)
        self.gamma = torch.zeros((), device=device)
        self.held: Params = {}  # the models, where the graphs read them
        self.places = Places(
            self.rows, device, weighted=weighs(recipe), settles=recipe.stable_after is not None
        )

    def __call__(
        self, theta: Params, who: Tensor, known: Tensor, step: float, sketch: Sketch | None
    ) -> tuple[Tensor, Tensor, ClusterSum, Tensor | None]:
        """Identities [p] and losses [p, k] on the CPU, the sum of the updates by cluster, the sketch.

        known: [p] the one model a client was sent, or -1. The host hears what the identity pass says while
        the steps run, and the many small launches after them are queued meanwhile.
        """
        with full_precision(), torch.no_grad():
            self.gamma.fill_(step)
            self._hold(theta)
            k, p = len(theta[self.names[0]]), len(who)
            place = self.places.of(who, known, k)
            turns, judge = place.turns, partial(self._judge, place.turns, place.take)
            if place.known is not None:
                judge = partial(self._judge_own, turns, place.take, place.ends)
            place.send(known)
            if not place.warm or not self.gamma.is_cuda:
                judged = judge()
                moved = self._steps(turns, judged, place.take)
                identity, losses, members = (part.cpu() for part in told(judged))
                place.warm = True
            else:
                place.captured = place.captured or Captured(
                    judge, partial(self._steps, turns, take=place.take)
                )
                judged, moved = place.captured.judged, place.captured.moved
                identity, losses, members = place.captured.replay()
            x = place.in_order(self.rows, judged, identity)
            gamma = self.gamma if self.recipe.option == "model" else None
            total = cluster_sum(
                self.rows, self.names, theta, x, turns, judged, moved, members.tolist(), gamma
            )
            drawn = (
                None
                if sketch is None
                else sketches(sketch, self.rows, self.names, turns, judged, moved, gamma)
            )
            drawn = None if drawn is None else place.listed(drawn)
            return place.listed(identity[:p]), place.listed(losses[:p]), total, drawn

    def _hold(self, theta: Params) -> None:
        """Put the models where graphs read them; as many as never before need other graphs."""
        if not self.held or self.held[self.names[0]].shape != theta[self.names[0]].shape:
            self.places.kept.clear()
            self.held = {name: value.clone() for name, value in theta.items()}
        for name, value in theta.items():
            self.held[name].copy_(value)

    def _judge(self, turns: Turns, take: Take) -> Judged:
        """Lines 6 and 7 of Algorithm 2; and the order of the rows by cluster."""
        (k, h, _), tiles = self.held[self.names[0]].shape, turns.tiles
        both, unit = self._first_layers()
        z = product(turns.x, both, take("z", (len(turns.x), k * h), self.type))
        losses = self._losses(turns, z, unit, take, None)
        identity = torch.where(turns.known >= 0, turns.known, core.identity(losses))
        at, size = tiles.start * z.stride(0) + identity * h, tiles.size.long()
        order = identity.argsort(stable=True)
        ends = size[order].cumsum(0)
        to = torch.empty_like(ends).scatter_(0, order, ends - size[order])
        row = torch.arange(len(z), device=z.device)
        place = torch.empty_like(row).scatter_(0, row + (to - tiles.start)[tiles.whose], row)
        return Judged(z, unit, at, losses, identity, to, place, self._members(turns, identity))

    def _judge_own(self, turns: Turns, take: Take, ends: list[int]) -> Judged:
        """The same where everybody is sent one model, whose clients stand together up to a row of ends."""
        (k, h, _), rows, known = self.held[self.names[0]].shape, len(turns.x), turns.known
        both, unit = self._first_layers()
        z, members = take("z", (rows, h), self.type), self._members(turns, known)
        for j, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if end > start:
                product(turns.x[start:end], both[:, j * h : (j + 1) * h], z[start:end])
        own = self._losses(turns, z, unit, take, known)
        losses = own.new_full((len(own), k), torch.nan).scatter_(1, known[:, None], own)
        to, order = turns.tiles.start, torch.arange(rows, device=z.device)
        return Judged(z, unit, to * h, losses, known, to, order, members)

    def _first_layers(self) -> tuple[Tensor, Tensor]:
        """Those of all models as fp16 parts, side by side: [parts, k h]; and each one's unit: [k]."""
        weight, bias = (self.held[name].contiguous() for name in self.names[:2])
        (k, h, _), rows = weight.shape, self.rows
        wide = weight.new_zeros(rows.width, k * h)
        wide[: rows.d] = weight.reshape(k * h, -1).t()
        wide[rows.d] = bias.reshape(-1)
        wide *= rows.unit[:, None]
        each = wide.view(-1, k, h)
        if self.single:  # no z is longer than the longest row times the longest column
            up = powers_of_two(torch.linalg.vector_norm(each, dim=0).amax(1) * rows.longest, HIGHEST_Z)
        else:
            up = powers_of_two(each.abs().amax((0, 2)), 256.0)
        each *= up[:, None]
        high = wide.half()
        low = (wide - high.float()).half()
        parts = [high] if self.single else [high, low] if rows.pixels else [high, low, high]
        return torch.cat(parts), 1 / up

    def _losses(self, turns: Turns, z: Tensor, unit: Tensor, take: Take, own: Tensor | None) -> Tensor:
        """Of every client under every model: [p, k]; under its own, of which z is then: [p, 1]."""
        if len(self.dense) == 1:
            out, bias = (self.held[name].contiguous() for name in self.names[2:4])
            return add_tiles(tile_losses(z, unit, turns.tiles, out, bias, turns.y, own), turns.tiles)
        return add_tiles(kernels.layer_losses(self._forward(turns, z, unit, take), own), turns.tiles)

    def _members(self, turns: Turns, identity: Tensor) -> Tensor:
        """Rows of each cluster."""
        of = torch.arange(len(self.held[self.names[0]]), device=identity.device)
        return ((identity == of[:, None]) * turns.tiles.size.long()).sum(1)

    def _steps(self, turns: Turns, judged: Judged, take: Take) -> Moved:
        """Local steps; of option I the gradient, which is what one step moves by."""
        tau = self.recipe.local_steps if self.recipe.option == "model" else 1
        forward = self._forward(turns, judged.z, judged.unit, take)
        moved: Moved = kernels.local_steps(forward, judged, self.rows.grams, self.gamma, tau, take)
        return moved

    def _forward(self, turns: Turns, z: Tensor, unit: Tensor, take: Take) -> Any:
        """The layers after the first, over rows of z."""
        dense = [
            (self.held[weight].contiguous(), self.held[bias].contiguous()) for weight, bias in self.dense
        ]
        return kernels.Forward(turns, z, unit, Sent(dense), take)
