"""Exact local training in mini-batches without first layers.

As in gram_steps.py Z_q = Z_0 - gamma G S_q, but a step asks for Z at the rows of its batch only, and changes
S there: batch x n products with G, or 2 x batch x d with its factors, for each of h hidden units; the cheaper
one is taken. No copy of the first layer goes through memory in a step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ifca.core.types import Params
from ifca.engines.gram.gram_steps import Gram, Signal


def batch_steps(
    signal: Signal, rest: Params, z: Tensor, g: Gram, y: Tensor, rows: Tensor, step: float, s: Tensor
) -> Tensor:
    """The same in mini-batches: S [b, n, h], into s. rows: [b, steps, batch] of each step, -1: padding.

    A step needs Z at its own rows only, Z_q = Z_0 - gamma G S_q, and changes S there. z: [b, n, h] is Z_0;
    rest [b, ...] is changed IN PLACE. A batch without samples is no step.
    """
    s.zero_()
    at, move = (
        torch.arange(len(z), device=z.device)[:, None],
        (FactorBatches if g.whole is None else Batches)(g, z, s, step),
    )
    for q in range(rows.shape[1]):
        here, row = rows[:, q] >= 0, rows[:, q].clamp(min=0)  # [b, batch]
        count = here.sum(1, keepdim=True)
        delta, slopes = signal(rest, move.at(at, row), y[at, row], here.to(z.dtype) / count.clamp(min=1))
        for name, value in rest.items():
            slope = slopes[name]
            value.sub_(slope * (count > 0).reshape(-1, *[1] * (slope.dim() - 1)), alpha=step)
        move.by(delta)
        s.scatter_add_(1, row[:, :, None].expand(delta.shape), delta)
    return s


def batch_gradient(signal: Signal, rest: Params, z: Tensor, y: Tensor, rows: Tensor, s: Tensor) -> Params:
    """The gradient of one mini-batch: D [b, n, h], into s, and those of the layers after the first.

    rows: [b, 1, batch], -1: padding.
    """
    at, here, row = torch.arange(len(z), device=z.device)[:, None], rows[:, 0] >= 0, rows[:, 0].clamp(min=0)
    weight = here.to(z.dtype) / here.sum(1, keepdim=True).clamp(min=1)
    delta, slopes = signal(rest, z[at, row], y[at, row], weight)
    s.zero_().scatter_add_(1, row[:, :, None].expand(delta.shape), delta)
    return slopes


class Batches:
    """Z_0 - step G S at the rows of a batch; S is changed by its owner."""

    def __init__(self, g: Gram, z: Tensor, s: Tensor, step: float) -> None:
        self.g, self.z, self.s, self.step = g, z, s, step

    def at(self, client: Tensor, row: Tensor) -> Tensor:
        """client: [b, 1]; row: [b, batch] -> [b, batch, h]."""
        assert self.g.whole is not None
        return torch.baddbmm(self.z[client, row], self.g.whole[client, row], self.s, alpha=-self.step)

    def by(self, delta: Tensor) -> None:
        """S changes by delta at the rows last asked for."""


class FactorBatches(Batches):
    """The same by the factors of G: X'S is kept, which a batch changes by its own rows."""

    def __init__(self, g: Gram, z: Tensor, s: Tensor, step: float) -> None:
        super().__init__(g, z, s, step)
        self.slope = g.x.new_zeros(len(z), g.x.shape[2], z.shape[2])  # X'S: [b, d, h]
        self.sum = z.new_zeros(len(z), 1, z.shape[2])  # 1'S
        self.x = g.x[:, :0]

    def at(self, client: Tensor, row: Tensor) -> Tensor:
        """client: [b, 1]; row: [b, batch] -> [b, batch, h]."""
        self.x = self.g.x[client, row]
        step = -self.step * self.g.scale**2
        z = torch.baddbmm(self.z[client, row], self.x, self.slope, alpha=step)
        return z.sub_(self.sum, alpha=self.step) if self.g.bias else z

    def by(self, delta: Tensor) -> None:
        """S changes by delta at the rows last asked for."""
        self.slope.baddbmm_(self.x.transpose(1, 2), delta)
        self.sum += delta.sum(1, keepdim=True)
