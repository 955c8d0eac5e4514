"""Exact full-batch local training without first layers (the mathematics of the fast path; plain torch).

A client has data X [n, d] and a first layer Z = X W' + b. With D = dF/dZ a full-batch step changes W by
-gamma D'X and b by -gamma 1'D, so after q steps

    Z_q = Z_0 - gamma G S_q,   G = X X' + 1 1',   S_q = D_1 + ... + D_q,

and the client's own first layer W_q = W_0 - gamma S_q'X never has to exist. G is fixed for the whole run.
A step costs n n h products with G, and 2 n d h with its factors X and X': the cheaper one is taken.
Momentum sums what is added to S before it is added; FedProx's mu (W_q - W_0) is -mu gamma S_q'X, so that it
takes mu gamma S_q from D.
The layers after the first ("the rest") are per-client copies, and small. Same arithmetic, another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap

from ifca.core.optimisers import Optimiser
from ifca.core.types import FirstLayer, Params, Task

PLAIN = Optimiser()
Signal = Callable[[Params, Tensor, Tensor, Tensor], tuple[Tensor, Params]]
"""rest [b, ...], z [b, n, h], y [b, n], weight [b, n] -> dF/dz (in scratch memory) and dF/drest."""


class Scratch:
    """Named buffers, reused from chunk to chunk: on a CPU fresh pages cost more than the arithmetic."""

    def __init__(self) -> None:
        self._flat: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], like: Tensor) -> Tensor:
        """An uninitialised tensor; it overwrites the last one taken under the same name."""
        size, flat = math.prod(shape), self._flat.get(name)
        if flat is None or flat.numel() < size or flat.dtype != like.dtype or flat.device != like.device:
            flat = self._flat[name] = torch.empty(size, dtype=like.dtype, device=like.device)
        return flat[:size].view(*shape)


@dataclass(frozen=True)
class Gram:
    """G = X X' + 1 1' of some clients: whole, or as its factors."""

    whole: Tensor | None  # [b, n, n]; None: as the product of x and its transpose
    x: Tensor  # [b, n, d], to be multiplied by scale
    scale: float
    bias: bool  # whether 1 1' is a part of it

    def move(self, z: Tensor, delta: Tensor, step: float) -> None:
        """Z <- Z - step G delta, in place. Both: [b, n, h]."""
        if self.whole is not None:
            torch.baddbmm(z, self.whole, delta, alpha=-step, out=z)
            return
        slope = torch.bmm(self.x.transpose(1, 2), delta)  # [b, d, h]
        torch.baddbmm(z, self.x, slope, alpha=-step * self.scale**2, out=z)
        if self.bias:
            z.sub_(delta.sum(1, keepdim=True), alpha=step)

    def squares(self, s: Tensor) -> Tensor:
        """tr(S'GS) of each client: [b] float64. s: [b, n, h]."""
        if self.whole is not None:
            return (torch.bmm(self.whole, s) * s).double().sum((1, 2)).clamp(min=0)
        slope = torch.bmm(self.x.transpose(1, 2), s).double() * self.scale  # S'X
        ones = s.double().sum(1).square().sum(1) if self.bias else 0
        return slope.square().sum((1, 2)) + ones


def has_factors(n: int, d: int) -> bool:
    """Whether the factors of G are cheaper than G: n n h > 2 n d h."""
    return n > 2 * d


def local_steps(
    signal: Signal,
    rest: Params,
    z: Tensor,
    g: Gram,
    y: Tensor,
    weight: Tensor,
    step: float,
    tau: int,
    s: Tensor,
    *,
    how: Optimiser = PLAIN,
    scratch: Scratch | None = None,
    catch_up: bool = False,
) -> Tensor:
    """LocalUpdate of a chunk of clients in Gram space: S_tau [b, n, h], into s.

    z [b, n, h] and rest [b, ...] are changed IN PLACE; rest ends as the clients' new layers, z one step
    behind unless it is to catch up. scratch: for what momentum remembers.
    """
    s.zero_()
    sent = {name: value.clone() for name, value in rest.items()} if how.proximal else {}
    moments: Params = {}
    velocity = None
    if how.optimizer == "momentum":
        velocity = (scratch or Scratch()).take("velocity", z.shape, z)
    for q in range(tau):
        delta, slopes = signal(rest, z, y, weight)
        if how.proximal:
            delta.sub_(s, alpha=how.proximal * step)
            slopes = {
                name: slope.add(rest[name] - sent[name], alpha=how.proximal) for name, slope in slopes.items()
            }
        if velocity is not None and q:
            delta = velocity.mul_(how.momentum).add_(delta)
            slopes = {name: slope.add(moments[name], alpha=how.momentum) for name, slope in slopes.items()}
        elif velocity is not None:
            delta = velocity.copy_(delta)
        moments = slopes
        for name, value in rest.items():
            value.sub_(slopes[name], alpha=step)
        if q + 1 < tau or catch_up:
            g.move(z, delta, step)
        s.add_(delta)
    return s


def make_signal(task: Task, first: FirstLayer, scratch: Scratch) -> Signal:
    """Written by hand for cross-entropy through ReLU and Linear layers, by autograd for everything else."""
    if first.dense is not None and task.classifies and task.objective is None and task.penalty is None:
        return _dense_signal(first.dense, scratch)
    rest_of = first.rest

    def loss(rest: Params, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        value = (task.minimised(rest_of(rest, z), y) * weight).sum()
        return value if task.penalty is None else value + task.penalty(rest)

    slopes = vmap(grad(loss, argnums=(0, 1)))

    def signal(rest: Params, z: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Params]:
        by_rest, by_z = slopes(rest, z, y, weight)
        return by_z, by_rest

    return signal


def dense_logits(
    dense: tuple[tuple[str, str], ...], rest: Params, z: Tensor, a: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """ReLU and Linear layers over a batch of models: z [b, n, h] -> logits [b, classes, n], activations.

    Classes come before samples: a softmax over a short last dimension is several times slower. a: memory
    for relu(z).
    """
    if not dense:
        return z.transpose(1, 2), []
    activations = [torch.clamp_min(z, 0, out=a)]
    for weight, bias in dense[:-1]:
        layer = torch.baddbmm(rest[bias][:, None, :], activations[-1], rest[weight].transpose(1, 2))
        activations.append(layer.clamp_min_(0))
    weight, bias = dense[-1]
    return torch.baddbmm(rest[bias][:, :, None], rest[weight], activations[-1].transpose(1, 2)), activations


def _dense_signal(dense: tuple[tuple[str, str], ...], scratch: Scratch) -> Signal:
    def signal(rest: Params, z: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Params]:
        logits, activations = dense_logits(dense, rest, z, scratch.take("relu", z.shape, z))
        p = torch.softmax(logits, 1).mul_(weight[:, None, :])
        p.scatter_add_(1, y[:, None, :], -weight[:, None, :])  # weight (softmax - one-hot): [b, classes, n]
        if not dense:
            return p.transpose(1, 2).contiguous(), {}
        slopes: Params = {}
        delta, at_left = p, True  # at_left: delta is [b, outputs, n] rather than [b, n, outputs]
        for i in range(len(dense) - 1, -1, -1):
            layer, bias = dense[i]
            turned = delta if at_left else delta.transpose(1, 2)
            slopes[layer], slopes[bias] = torch.bmm(turned, activations[i]), turned.sum(2)
            out = scratch.take(f"delta{i}", activations[i].shape, z)
            delta, at_left = torch.bmm(turned.transpose(1, 2), rest[layer], out=out), False
            torch.ops.aten.threshold_backward.grad_input(delta, activations[i], 0, grad_input=delta)
        return delta, slopes

    return signal
