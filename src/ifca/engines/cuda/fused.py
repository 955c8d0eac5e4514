"""A round of a classifier with one hidden ReLU layer on one CUDA GPU: fp32-like accuracy, tensor-core speed.

Pixels are whole numbers up to 255, exact in fp16. A float32 matrix times a power of two is the sum of two
fp16 matrices to 22 bits, so X W = [X X] [hi; lo] with exact products and float32 accumulation: one fp16
product, no TF32 anywhere. X has one more column, 255, that carries the bias. The local steps are Triton
kernels (fused_kernels.py). The many small launches are replayed as CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ifca.core import identity as core
from ifca.core.recipe import Recipe
from ifca.core.sketch import Sketch
from ifca.core.types import ClusterSum, Params, Task
from ifca.data import Clients
from ifca.engines.covered import not_fused
from ifca.methods.aggregation import weighs

try:
    from ifca.engines.cuda import fused_kernels as kernels
except ImportError:  # Triton is optional: without it the plain fast path runs on the GPU too
    kernels = None  # type: ignore[assignment]

PIXEL = 1 / 255


class Judged(NamedTuple):
    """What the identity pass leaves on the GPU."""

    z: Tensor  # [m n, k h], to be multiplied by unit
    unit: Tensor
    losses: Tensor  # [m, k]
    identity: Tensor  # [m]
    order: Tensor  # [m] clients in cluster order
    place: Tensor  # [m] each client's place in that order
    members: Tensor  # [k]


def applies(task: Task, recipe: Recipe, clients: Clients, device: torch.device) -> bool:
    """uint8 pixels, clients of one size, model averaging of a Linear-ReLU-Linear classifier, CUDA, Triton."""
    return kernels is not None and not not_fused(task, recipe, clients, device)


def bytes_needed(clients: Clients, shape: torch.Size) -> int:
    """What a FusedRound holds: data twice, z of all models, sums and Gram matrices as two parts."""
    (k, h, d), rows, n = shape, int(clients.offsets[-1]), int(clients.sizes.max())
    return rows * (4 * (d + 8) + 4 * k * h + 24 * h + 8 * n) + 16 * 4 * 2 * h * -(-rows // 64)


class FusedRound:
    """All clients, all k models; made once for a run."""

    def __init__(self, task: Task, recipe: Recipe, clients: Clients, device: torch.device) -> None:
        assert task.first is not None
        assert task.first.bias is not None
        assert task.first.dense is not None
        self.recipe, self.names = recipe, (task.first.weight, task.first.bias, *task.first.dense[0])
        self.m, self.n = len(clients), int(clients.sizes[0])
        self.d = int(clients.x[0].numel())
        width = (self.d + 1 + 7) // 8 * 8
        self.x2 = torch.zeros(self.m * self.n, 2 * width, dtype=torch.float16, device=device)  # [X X]
        self.y = clients.y.to(device).int().view(self.m, self.n)
        self.weight = torch.full((self.m, self.n), 1 / self.n, device=device)
        self.a = torch.full((self.m,), float(self.n) if weighs(recipe) else 1.0, device=device)
        self.buffers: dict[str, Tensor] = {}
        self.gamma = torch.zeros((), device=device)
        self.grams = self._prepare(clients, width)
        self.known = torch.full((self.m,), -1, device=device)
        self.held: Params = {}  # the models, where the graphs read them
        self.graphs: tuple[Any, Any] | None = None

    def _prepare(self, clients: Clients, width: int) -> tuple[Tensor, Tensor]:
        """Fill [X X] and the Gram matrices, a few clients at a time."""
        rows, columns = kernels.gram_shape(self.n)
        parts = torch.zeros(2, self.m, rows, columns, dtype=torch.float16, device=self.x2.device)
        largest = torch.tensor(self.d + 1.0, device=self.x2.device)  # no entry of X X' + 1 1' is larger
        scale = kernels.power_of_two(largest, 1024.0)
        some = max(1, 2**26 // (self.n * self.d))
        for i in range(0, self.m, some):
            at = slice(i * self.n, min(self.m, i + some) * self.n)
            pixels = clients.x[at].to(self.x2.device).flatten(1).half()
            for start in (0, width):
                self.x2[at, start : start + self.d] = pixels
                self.x2[at, start + self.d] = 255
            floats = pixels.float().view(-1, self.n, self.d)
            with full_precision():
                g = torch.bmm(floats, floats.transpose(1, 2)).mul_(PIXEL**2).add_(1)
            kernels.split_gram(g, scale, self.n, parts[:, i : i + some])
        return parts, scale

    def __call__(
        self, theta: Params, known: Tensor, step: float, sketch: Sketch | None
    ) -> tuple[Tensor, Tensor, ClusterSum, Tensor | None]:
        """Identities [m] and losses [m, k] on the CPU, the sum of the clients' models by cluster, the sketch.

        known: [m] the one model a client was sent, or -1. Whatever needs the host is read before the steps
        begin, so that the many small launches after them are queued while they run.
        """
        with full_precision(), torch.no_grad():
            self.gamma.fill_(step)
            self.known.copy_(known)
            if not self.held or self.held[self.names[0]].shape != theta[self.names[0]].shape:
                self.graphs = None  # the first round of so many models compiles the kernels
                self.held = {name: value.clone() for name, value in theta.items()}
                judged = self._judge(self.held)
                host = _to_host(judged)
                return self._sum(theta, judged, self._steps(self.held, judged), *host, sketch)
            for name, value in theta.items():
                self.held[name].copy_(value)
            if self.graphs is None:
                self.graphs = self._record()
            self.graphs[0].replay()
            host = _to_host(self.judged)
            self.graphs[1].replay()
            return self._sum(theta, self.judged, self.moved, *host, sketch)

    def _record(self) -> tuple[Any, Any]:
        torch.cuda.synchronize()
        first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(first):
            self.judged = self._judge(self.held)
        with torch.cuda.graph(second):
            self.moved = self._steps(self.held, self.judged)
        return first, second

    def _judge(self, theta: Params) -> Judged:
        weight, bias, out, out_bias = (theta[name] for name in self.names)
        (k, h, _), m, n, width = weight.shape, self.m, self.n, self.x2.shape[1] // 2
        wide = weight.new_zeros(width, k * h)
        wide[: self.d] = weight.reshape(k * h, -1).t() * PIXEL
        wide[self.d] = bias.reshape(-1) * PIXEL
        up = kernels.power_of_two(wide, 256.0)
        wide = wide * up
        high = wide.half()
        both = torch.cat([high, (wide - high).half()])
        z = torch.mm(self.x2, both, out_dtype=torch.float32, out=self._take("z", (m * n, k * h)))
        rows = kernels.row_losses(z, 1 / up, out.contiguous(), out_bias.contiguous(), self.y, self.weight)
        losses = rows.view(k, m, n).sum(2).t()
        identity = torch.where(self.known >= 0, self.known, core.identity(losses))
        order = identity.argsort(stable=True)
        place = torch.empty_like(order).scatter_(0, order, torch.arange(m, device=z.device))
        members = (identity == torch.arange(k, device=z.device)[:, None]).sum(1)
        return Judged(z, 1 / up, losses, identity, order, place, members)

    def _steps(self, theta: Params, judged: Judged) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        _, _, out, out_bias = (theta[name].contiguous() for name in self.names)
        moved: tuple[Tensor, Tensor, Tensor, Tensor] = kernels.local_steps(
            judged.z,
            judged.unit,
            self.grams,
            out,
            out_bias,
            self.y,
            self.weight,
            judged.identity,
            judged.place,
            self.a,
            self.gamma,
            self.recipe.local_steps,
            self._take,
        )
        return moved

    def _sum(
        self,
        theta: Params,
        judged: Judged,
        moved: tuple[Tensor, Tensor, Tensor, Tensor],
        found: Tensor,
        losses: Tensor,
        members: list[int],
        sketch: Sketch | None,
    ) -> tuple[Tensor, Tensor, ClusterSum, Tensor | None]:
        """Sum over i of s_ij w_i theta_i = (sum of w) theta_j - gamma (sum of w times what they moved by)."""
        parts, unit, out, out_bias = moved
        (k, h, _), n, width = theta[self.names[0]].shape, self.n, self.x2.shape[1] // 2
        words = self.x2.view(torch.int64).view(self.m, n, -1)[:, :, : width // 4]  # four at a time: faster
        x = words.index_select(0, judged.order).view(torch.float16).view(-1, width)
        slopes, at = torch.zeros(k, width, 2 * h, device=x.device), 0
        for j, count in enumerate(members):
            if count:
                rows = slice(at * n, (at + count) * n)
                torch.mm(x[rows].t(), parts[rows], out_dtype=torch.float32, out=slopes[j])
            at += count
        first = (slopes.view(k, width, 2, h).sum(2) / unit).transpose(1, 2).double() * PIXEL  # [k, h, width]
        own = (judged.identity == torch.arange(k, device=x.device)[:, None]) * self.a
        later = [(own @ part.flatten(1)).view(k, *part.shape[1:]).double() for part in (out, out_bias)]
        moves = (first[:, :, : self.d], first[:, :, self.d], *later)
        weight = own.double().sum(1)
        total = {}
        for name, move in zip(self.names, moves, strict=True):
            value = theta[name].double()
            total[name] = weight.reshape(-1, *[1] * (value.dim() - 1)) * value - self.gamma * move
        drawn = None if sketch is None else self._drawn(sketch, judged, x, moved)
        return found, losses, ClusterSum(total, weight), drawn

    def _drawn(
        self, sketch: Sketch, judged: Judged, x: Tensor, moved: tuple[Tensor, Tensor, Tensor, Tensor]
    ) -> Tensor:
        """Each client's update in a few numbers: [m, q]. x, parts: rows in cluster order."""
        parts, unit, out, out_bias = moved
        weight, bias, *later = self.names
        result = torch.empty(self.m, sketch.width, device=x.device)
        some = max(1, 2**19 // self.n)  # clients at a time
        for i in range(0, self.m, some):
            at, clients = slice(i * self.n, min(self.m, i + some) * self.n), judged.order[i : i + some]
            high, low = parts[at].float().view(len(clients), self.n, 2, -1).unbind(2)
            s = (high + low) / (unit * self.a[clients, None, None])
            pixels = x[at, : self.d].float().view(len(clients), self.n, -1)
            first = sketch.outer(weight, s, pixels) * PIXEL + sketch.part(bias, s.sum(1))
            rest = zip(later, (out[clients], out_bias[clients]), strict=True)
            result[clients] = -self.gamma * (first + sum(sketch.part(n, value) for n, value in rest))
        return result.cpu()

    def _take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer that stays where it is, as CUDA graphs need."""
        held = self.buffers.get(name)
        if held is None or held.shape != shape:
            held = self.buffers[name] = torch.empty(shape, dtype=dtype, device=self.x2.device)
        return held


def _to_host(judged: Judged) -> tuple[Tensor, Tensor, list[int]]:
    return judged.identity.cpu(), judged.losses.cpu(), judged.members.tolist()


@contextmanager
def full_precision() -> Iterator[None]:
    """fp32 products without TF32 and fp16 products that reduce in float32, whatever the caller has set."""
    flags = torch.backends.cuda.matmul
    before = flags.allow_fp16_reduced_precision_reduction, torch.get_float32_matmul_precision()
    flags.allow_fp16_reduced_precision_reduction = False
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        flags.allow_fp16_reduced_precision_reduction = before[0]
        torch.set_float32_matmul_precision(before[1])
