"""A round of a classifier with hidden ReLU layers on one CUDA GPU: fp32-like accuracy, tensor-core speed.

A float32 matrix times a power of two is the sum of two fp16 matrices to 22 bits, so X W is one fp16 product
of X's and W's parts side by side (fused_rows.py), with exact products and float32 accumulation: no TF32
anywhere. The bias is one more column of X. The local steps are Triton kernels (fused_steps.py), what is
left to add is in fused_sums.py. The many small launches are replayed as CUDA graphs: one for everybody, and
one for each size, rounded up, that the participants of a round have together.
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
from ifca.engines.cuda.fused_place import Captured, Place, told
from ifca.engines.cuda.fused_rows import SMALL, FusedRows, Tiles, bytes_of, full_precision
from ifca.engines.cuda.fused_sums import Judged, Moved, Turns, cluster_sum, product, sketches
from ifca.engines.cuda.halves import powers_of_two
from ifca.engines.cuda.sent import Sent
from ifca.methods.aggregation import weighs

try:
    from ifca.engines.cuda import fused_steps as kernels
    from ifca.engines.cuda.fused_kernels import add_tiles
    from ifca.engines.cuda.loss_kernel import tile_losses
except ImportError:  # Triton is optional: without it the plain fast path runs on the GPU too
    kernels = None  # type: ignore[assignment]

PLACES = 8  # that are kept
Take = Callable[..., Tensor]
"""Memory by a name, a shape and a dtype."""


def applies(task: Task, recipe: Recipe, clients: Clients, device: torch.device) -> bool:
    """Averages of a classifier of Linear and ReLU layers, CUDA, Triton."""
    return kernels is not None and not not_fused(task, recipe, clients, device)


def bytes_needed(task: Task, clients: Clients, theta: Params) -> int:
    """What a FusedRound holds: data and Gram matrices as parts, z of all models, sums and their gradients."""
    assert task.first is not None
    assert task.first.dense is not None
    (k, h, d), rows = theta[task.first.weight].shape, int(clients.offsets[-1])
    *hidden, last = (theta[name].shape[1:] for name, _ in task.first.dense)  # [out, in]
    tiles = int((-(-clients.sizes // 64)).sum())
    pixels = clients.x.dtype == torch.uint8
    held = bytes_of(clients.sizes, d, pixels=pixels)
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
        self.rows = FusedRows(clients, device)
        self.gamma = torch.zeros((), device=device)
        self.held: Params = {}  # the models, where the graphs read them
        self.places: dict[tuple[int, ...], Place] = {}

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
            place = self._place(who)
            turns, p = place.turns, len(who)
            place.send(known)
            if not place.warm or not self.gamma.is_cuda:
                judged = self._judge(turns, place.take)
                moved = self._steps(turns, judged, place.take)
                identity, losses, members = (part.cpu() for part in told(judged))
                place.warm = True
            else:
                place.captured = place.captured or Captured(
                    partial(self._judge, turns, place.take), partial(self._steps, turns, take=place.take)
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
            return identity[:p], losses[:p], total, drawn

    def _hold(self, theta: Params) -> None:
        """Put the models where graphs read them; as many as never before need other graphs."""
        if not self.held or self.held[self.names[0]].shape != theta[self.names[0]].shape:
            self.places.clear()
            self.held = {name: value.clone() for name, value in theta.items()}
        for name, value in theta.items():
            self.held[name].copy_(value)

    def _place(self, who: Tensor) -> Place:
        """Where the turns of some clients are taken; their rows are put there, unless they are everyone."""
        every = len(who) == len(self.rows.sizes)  # who is in rising order
        if every and (0,) in self.places:
            return self.places[0,]
        tiles = self.rows.tiles(who.numpy(), exact=every)
        small = int(tiles.size.max()) <= SMALL
        key = (0,) if every else (len(who), len(tiles.whose), len(tiles.client), int(small))
        if key not in self.places:
            while len(self.places) >= PLACES:
                self.places.pop(next(iter(self.places)))
            self.places[key] = Place(self._room(tiles, small, every=every), every=every)
        place = self.places[key]
        if not every:
            index = self.rows.index(who.numpy())
            torch.index_select(self.rows.x, 0, index, out=place.turns.x[: len(index)])
            torch.index_select(self.rows.y, 0, index, out=place.turns.y[: len(index)])
            for mine, theirs in zip(place.turns.tiles, tiles, strict=True):
                mine.copy_(theirs)
            self._fill(place.turns)
        return place

    def _room(self, tiles: Tiles, small: bool, *, every: bool) -> Turns:
        """For turns on such tiles."""
        device, rows, count = self.gamma.device, len(tiles.whose), len(tiles.size)
        here = Tiles(*(part.to(device) for part in tiles))
        x = (
            self.rows.x
            if every
            else torch.zeros(rows, self.rows.x.shape[1], dtype=torch.float16, device=device)
        )
        y = self.rows.y if every else torch.zeros(rows, dtype=torch.int32, device=device)
        scale, a = torch.zeros(count, device=device), torch.zeros(count, device=device)
        last = len(self.held[self.names[0]]) - 1  # nobody comes after everybody else in cluster order
        turns = Turns(x, y, here, scale, a, torch.full((count,), last, device=device), small)
        self._fill(turns)
        return turns

    def _fill(self, turns: Turns) -> None:
        """What the clients on tiles that are in place weigh, and their Gram matrices' scales."""
        torch.index_select(self.rows.scale, 0, turns.tiles.place, out=turns.scale)
        if weighs(self.recipe):
            turns.a.copy_(turns.tiles.size)
        else:
            turns.a.fill_(1)
        turns.a[-1] = 0

    def _judge(self, turns: Turns, take: Take) -> Judged:
        """Lines 6 and 7 of Algorithm 2; and the order of the rows by cluster."""
        weight, bias, out, out_bias = (self.held[name].contiguous() for name in self.names[:4])
        (k, h, _), tiles, rows = weight.shape, turns.tiles, self.rows
        wide = weight.new_zeros(rows.width, k * h)
        wide[: rows.d] = weight.reshape(k * h, -1).t()
        wide[rows.d] = bias.reshape(-1)
        wide *= rows.unit[:, None]
        up = powers_of_two(wide.abs().amax(), 256.0)
        wide *= up
        high = wide.half()
        low = (wide - high.float()).half()
        both = torch.cat([high, low] if rows.pixels else [high, low, high])
        z = product(turns.x, both, take("z", (len(turns.x), k * h)))
        if len(self.dense) == 1:
            found = tile_losses(z, 1 / up, tiles, out, out_bias, turns.y)
        else:
            found = kernels.layer_losses(self._forward(turns, z, 1 / up, take))
        losses = add_tiles(found, tiles)
        identity = torch.where(turns.known >= 0, turns.known, core.identity(losses))
        of = torch.arange(k, device=z.device)
        size = tiles.size.long()
        members = ((identity == of[:, None]) * size).sum(1)
        order = identity.argsort(stable=True)
        ends = size[order].cumsum(0)
        to = torch.empty_like(ends).scatter_(0, order, ends - size[order])
        row = torch.arange(len(z), device=z.device)
        place = row + (to - tiles.start)[tiles.whose]
        return Judged(z, 1 / up, losses, identity, to, torch.empty_like(row).scatter_(0, place, row), members)

    def _steps(self, turns: Turns, judged: Judged, take: Take) -> Moved:
        """Local steps; of option I the gradient, which is what one step moves by."""
        forward = self._forward(turns, judged.z, judged.unit, take)
        tau = self.recipe.local_steps if self.recipe.option == "model" else 1
        moved: Moved = kernels.local_steps(forward, judged, self.rows.grams, self.gamma, tau, take)
        return moved

    def _forward(self, turns: Turns, z: Tensor, unit: Tensor, take: Take) -> Any:
        """The layers after the first, over rows of z."""
        dense = [
            (self.held[weight].contiguous(), self.held[bias].contiguous()) for weight, bias in self.dense
        ]
        return kernels.Forward(turns, z, unit, Sent(dense), take)
