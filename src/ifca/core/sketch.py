"""A client's update in a few numbers: random projections that keep distances, the same for all clients.

A weight matrix W is projected as u'Wv with random signs u and v. Engines that never form a client's W (it is
a sum of outer products over its samples) can still compute that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ifca.core.averages import running_statistics
from ifca.core.random import generator
from ifca.core.types import Params

WIDTH = 128


@dataclass(frozen=True)
class Sketch:
    """Random signs for each parameter."""

    left: Params  # [a, q] for a parameter [a] or [a, ...]
    right: Params  # [b, q] for a parameter [a, ...] of a x b numbers

    @property
    def width(self) -> int:
        """q, numbers per client."""
        return next(iter(self.left.values())).shape[1]

    def of(self, update: Params) -> Tensor:
        """Updates [c, ...] -> [c, q]; running statistics, whose units are others, are left out."""
        names = sorted(set(update) - running_statistics(update))
        return torch.stack([self.part(name, update[name]) for name in names]).sum(0)

    def part(self, name: str, value: Tensor) -> Tensor:
        """What one parameter adds: [c, ...] -> [c, q]."""
        if name not in self.right:
            return value.reshape(len(value), -1) @ self.left[name]
        return ((value.flatten(2) @ self.right[name]) * self.left[name]).sum(1)

    def outer(self, name: str, signal: Tensor, x: Tensor) -> Tensor:
        """What S'X adds; formed only where a is small. signal: [c, n, a]; x: [c, n, b] -> [c, q]."""
        n, a = signal.shape[1:]
        if a * (n + self.width) < n * self.width:
            return self.part(name, signal.transpose(1, 2) @ x)
        return ((signal @ self.left[name]) * (x @ self.right[name])).sum(1)


def make_sketch(theta: Params, seed: int, width: int = WIDTH) -> Sketch:
    """The sketch of a run. theta: [k, ...] the models, for their shapes, type and device."""
    shapes = tuple((name, value.shape[1:]) for name, value in sorted(theta.items()))
    like = next(iter(theta.values()))
    return _made(shapes, like.dtype, like.device, seed, width)


@lru_cache(maxsize=2)
def _made(
    shapes: tuple[tuple[str, torch.Size], ...],
    dtype: torch.dtype,
    device: torch.device,
    seed: int,
    width: int,
) -> Sketch:
    """It is asked for in every round, and always the same."""
    left, right = {}, {}
    for i, (name, shape) in enumerate(shapes):
        rng = generator(seed, "sketch", i)
        rows = shape[0] if shape else 1

        def signs(count: int, rng: torch.Generator = rng) -> Tensor:
            drawn = torch.randint(0, 2, (count, width), generator=rng)
            return (2 * drawn - 1).to(device, dtype)

        left[name] = signs(rows)
        if len(shape) > 1:
            right[name] = signs(shape[1:].numel())
    return Sketch(left, right)
