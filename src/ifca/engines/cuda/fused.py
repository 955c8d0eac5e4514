"""A round of a classifier with one hidden ReLU layer on one CUDA GPU: fp32-like accuracy, tensor-core speed.

A float32 matrix times a power of two is the sum of two fp16 matrices to 22 bits, so X W is one fp16 product
of X's and W's parts side by side (fused_rows.py), with exact products and float32 accumulation: no TF32
anywhere. The bias is one more column of X. The local steps are Triton kernels (fused_kernels.py), what is
left to add is in fused_sums.py. Where everybody takes part, the many small launches are replayed as CUDA
graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ifca.core import identity as core
from ifca.core.recipe import Recipe
from ifca.core.sketch import Sketch
from ifca.core.types import ClusterSum, Params, Task
from ifca.data import Clients
from ifca.engines.covered import not_fused
from ifca.engines.cuda.fused_rows import FusedRows, Tiles, bytes_of, full_precision
from ifca.engines.cuda.fused_sums import Judged, Moved, Turns, cluster_sum, product, sketches
from ifca.methods.aggregation import weighs

try:
    from ifca.engines.cuda import fused_kernels as kernels
    from ifca.engines.cuda.loss_kernel import tile_losses
except ImportError:  # Triton is optional: without it the plain fast path runs on the GPU too
    kernels = None  # type: ignore[assignment]

Take = Callable[..., Tensor]
"""Memory by a name, a shape and a dtype."""


def applies(task: Task, recipe: Recipe, clients: Clients, device: torch.device) -> bool:
    """Averages of a Linear-ReLU-Linear classifier, CUDA, Triton."""
    return kernels is not None and not not_fused(task, recipe, clients, device)


def bytes_needed(clients: Clients, shape: torch.Size) -> int:
    """What a FusedRound holds: data and Gram matrices as parts, z of all models, sums and their gradients."""
    (k, h, d), rows = shape, int(clients.offsets[-1])
    tiles = int((-(-clients.sizes // 64)).sum())
    pixels = clients.x.dtype == torch.uint8
    held = bytes_of(clients.sizes, d, pixels=pixels)
    return held + rows * (4 * k * h + 16 * h + 4 * (d + 8)) + (tiles + len(clients)) * 64 * (h + 1)


class FusedRound:
    """All k models; made once for a run."""

    def __init__(self, task: Task, recipe: Recipe, clients: Clients, device: torch.device) -> None:
        assert task.first is not None
        assert task.first.bias is not None
        assert task.first.dense is not None
        self.recipe, self.names = recipe, (task.first.weight, task.first.bias, *task.first.dense[0])
        self.rows = FusedRows(clients, device)
        self.gamma = torch.zeros((), device=device)
        self.everyone = self._turns(self.rows.x, self.rows.y, self.rows.everyone)
        self.buffers: dict[str, Tensor] = {}
        self.held: Params = {}  # the models, where the graphs read them
        self.graphs: tuple[Any, Any] | None = None

    def _turns(self, x: Tensor, y: Tensor, tiles: Tiles) -> Turns:
        a = tiles.size.float() if weighs(self.recipe) else torch.ones_like(tiles.scale)
        return Turns(x, y, tiles, a, torch.full_like(tiles.start, -1))

    def __call__(
        self, theta: Params, who: Tensor, known: Tensor, step: float, sketch: Sketch | None
    ) -> tuple[Tensor, Tensor, ClusterSum, Tensor | None]:
        """Identities [p] and losses [p, k] on the CPU, the sum of the updates by cluster, the sketch.

        known: [p] the one model a client was sent, or -1. Whatever needs the host is read before the steps
        begin, so that the many small launches after them are queued while they run.
        """
        with full_precision(), torch.no_grad():
            self.gamma.fill_(step)
            if not torch.equal(who, torch.arange(len(self.rows.sizes))):
                turns = self._turns(*self.rows.of(who.numpy()), self.rows.tiles(who.numpy()))
                turns.known.copy_(known)
                return self._whole(theta, turns, self._new, sketch)
            self.everyone.known.copy_(known)
            if not self.held or self.held[self.names[0]].shape != theta[self.names[0]].shape:
                self.graphs = None  # the first round of so many models compiles the kernels
                self.held = {name: value.clone() for name, value in theta.items()}
                return self._whole(self.held, self.everyone, self._take, sketch)
            for name, value in theta.items():
                self.held[name].copy_(value)
            if self.graphs is None and self.gamma.is_cuda:
                self.graphs = self._record()
            if self.graphs is None:
                return self._whole(self.held, self.everyone, self._take, sketch)
            self.graphs[0].replay()
            host = _to_host(self.judged)
            self.graphs[1].replay()
            return self._replies(theta, self.everyone, self.judged, self.moved, host, sketch)

    def _whole(
        self, theta: Params, turns: Turns, take: Take, sketch: Sketch | None
    ) -> tuple[Tensor, Tensor, ClusterSum, Tensor | None]:
        judged = self._judge(theta, turns, take)
        host, moved = _to_host(judged), self._steps(theta, turns, judged, take)
        return self._replies(theta, turns, judged, moved, host, sketch)

    def _replies(
        self,
        theta: Params,
        turns: Turns,
        judged: Judged,
        moved: Moved,
        host: tuple[Tensor, Tensor, list[int]],
        sketch: Sketch | None,
    ) -> tuple[Tensor, Tensor, ClusterSum, Tensor | None]:
        step = self.gamma if self.recipe.option == "model" else None
        total = cluster_sum(self.rows, self.names, theta, turns, judged, moved, host[2], step)
        drawn = (
            None if sketch is None else sketches(sketch, self.rows, self.names, turns, judged, moved, step)
        )
        return host[0], host[1], total, drawn

    def _record(self) -> tuple[Any, Any]:
        torch.cuda.synchronize()
        first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(first):
            self.judged = self._judge(self.held, self.everyone, self._take)
        with torch.cuda.graph(second):
            self.moved = self._steps(self.held, self.everyone, self.judged, self._take)
        return first, second

    def _judge(self, theta: Params, turns: Turns, take: Take) -> Judged:
        """Lines 6 and 7 of Algorithm 2; and the order of the rows by cluster."""
        weight, bias, out, out_bias = (theta[name] for name in self.names)
        (k, h, _), tiles, rows = weight.shape, turns.tiles, self.rows
        wide = weight.new_zeros(rows.width, k * h)
        wide[: rows.d] = weight.reshape(k * h, -1).t()
        wide[rows.d] = bias.reshape(-1)
        wide *= rows.unit[:, None]
        up = kernels.powers_of_two(wide.abs().amax(), 256.0)
        wide *= up
        high = wide.half()
        low = (wide - high.float()).half()
        both = torch.cat([high, low] if rows.pixels else [high, low, high])
        z = product(turns.x, both, take("z", (len(turns.x), k * h)))
        found = tile_losses(z, 1 / up, tiles, out.contiguous(), out_bias.contiguous(), turns.y)
        losses = kernels.add_tiles(found, tiles, found.new_empty(len(tiles.size), k), more=False)
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

    def _steps(self, theta: Params, turns: Turns, judged: Judged, take: Take) -> Moved:
        """Local steps; of option I the gradient, which is what one step moves by."""
        _, _, out, out_bias = (theta[name].contiguous() for name in self.names)
        moved: Moved = kernels.local_steps(
            judged.z,
            judged.unit,
            self.rows.grams,
            turns.tiles,
            out,
            out_bias,
            turns.y,
            judged.identity,
            judged.to,
            turns.a,
            self.gamma,
            self.recipe.local_steps if self.recipe.option == "model" else 1,
            take,
        )
        return moved

    def _take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer that stays where it is, as CUDA graphs need."""
        held = self.buffers.get(name)
        if held is None or held.shape != shape:
            held = self.buffers[name] = self._new(name, shape, dtype)
        return held

    def _new(self, _name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.gamma.device)


def _to_host(judged: Judged) -> tuple[Tensor, Tensor, list[int]]:
    return judged.identity.cpu(), judged.losses.cpu(), judged.members.tolist()
