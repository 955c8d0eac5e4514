"""Numbers as fp16, in a unit that keeps them in its range."""

from __future__ import annotations

import torch
from torch import Tensor

HIGHEST = 1024.0  # what the largest number becomes: 64 times under fp16's own


def powers_of_two(t: Tensor, top: float) -> Tensor:
    """The powers of two (no synchronisation) that bring each number of t >= 0 to between top/2 and top."""
    return torch.exp2(torch.floor(torch.log2(top / t.clamp(min=1e-30)))).clamp(max=2.0**60)


def half_unit(t: Tensor) -> Tensor:
    """The powers of two that bring each client's numbers into fp16's range: [c, ...] -> [c].

    What one client has must not decide how exact another's numbers are.
    """
    return powers_of_two(torch.linalg.vector_norm(t.flatten(1), torch.inf, dim=1), HIGHEST)


def halved(t: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers times a power of two of each client as fp16, which has the 11 bits of TF32; and the powers."""
    unit = half_unit(t)
    return torch.mul(t, beside(unit, t), out=torch.empty_like(t, dtype=torch.float16)), unit


def beside(unit: Tensor, t: Tensor) -> Tensor:
    """[c] as it is multiplied with [c, ...]."""
    return unit.view(-1, *[1] * (t.dim() - 1))
