"""The layers after the first as the fused round's kernels read them (fused.py).

Imported only where Triton is there.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ifca.engines.cuda.halves import beside, powers_of_two

Halves = tuple[Tensor, Tensor]
"""A float32 tensor times a power of two, as two fp16 parts."""


class Layers(NamedTuple):
    """The layers after the first of k models, or of p clients, as kernels read them."""

    hidden: list[Halves]  # [k, out, in]
    biases: list[Tensor]  # [k, out]
    last: Halves  # [k, h, cp]
    bias: Tensor  # [k, cp]


class Sent:
    """The layers after the first as the server sent them: [k, ...], and of each one powers of two [k].

    What one model is must not decide how exact the others' numbers are.
    """

    def __init__(self, dense: list[tuple[Tensor, Tensor]]) -> None:
        self.hidden, (self.out, bias) = dense[:-1], dense[-1]
        k, self.classes, h = self.out.shape
        self.cp = max(16, 1 << (self.classes - 1).bit_length())
        self.whole = torch.full((k, h + 1, self.cp), float("-inf"), device=bias.device)
        self.whole[:, :h] = 0  # W2 and, in a last row, b2
        self.whole[:, :h, : self.classes] = self.out.transpose(1, 2)
        self.whole[:, h, : self.classes] = bias
        self.units = [powers_of_two(weight.abs().amax((1, 2)), 512.0) for weight, _ in dense]
        self.layers = Layers(
            [_halves(weight, unit) for (weight, _), unit in zip(self.hidden, self.units, strict=False)],
            [bias for _, bias in self.hidden],
            _halves(self.whole[:, :h], self.units[-1]),
            self.whole[:, h].contiguous(),
        )

    def widths(self) -> list[int]:
        """Units of each hidden layer."""
        return [weight.shape[2] for weight, _ in self.hidden] + [self.out.shape[2]]

    def bounds(self, share: Tensor, models: Tensor) -> list[Tensor]:
        """What |dF/dz| of each hidden layer cannot pass: [p] each. share: [p] 1 / samples; models: [p].

        |dF/dlogits| is at most 2 share in sum and sqrt(2) share in length; lengths grow by a matrix's norm.
        """
        length = 2**0.5 * _norm(self.out)
        found = [2 * self.out.abs().amax((1, 2))]
        for weight, _ in reversed(self.hidden):
            found.append(length * torch.linalg.vector_norm(weight, dim=1).amax(1))
            length = length * _norm(weight)
        return [bound[models] * share for bound in reversed(found)]


def _halves(value: Tensor, unit: Tensor) -> Halves:
    """Float32 matrices [k, ...] times a power of two each, as two fp16 parts."""
    value = value * beside(unit, value)
    high = value.half()
    return high, (value - high.float()).half()


def _norm(weight: Tensor) -> Tensor:
    """The lengths of matrices [k, out, in]."""
    lengths: Tensor = torch.linalg.vector_norm(weight, dim=(1, 2))
    return lengths
