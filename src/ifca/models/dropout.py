"""Dropout whose masks are functions of (seed, round, client, step, sample): runs repeat, engines agree."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ifca.core.errors import InvalidInput
from ifca.core.random import mixed
from ifca.core.types import Batch
from ifca.models.passes import Pass

KINDS = {nn.Dropout: False, nn.Dropout1d: True, nn.Dropout2d: True, nn.Dropout3d: True}  # whole channels?
RANGE = 2**62


class SeededDropout(nn.Module):
    """torch's dropout with masks that are hashes of the batch's random numbers."""

    def __init__(self, now: Pass, name: str, p: float, channels: bool) -> None:
        super().__init__()
        self.now, self.name, self.p, self.channels = now, name, p, channels

    def forward(self, x: Tensor) -> Tensor:
        """x: [n, ...]. Steps without random numbers drop nothing."""
        batch = self.now.samples(self.name, x)
        draws = batch.draws if isinstance(batch, Batch) else None
        self.now.calls += 1
        if draws is None or self.p == 1:
            return x if self.p < 1 else x * 0
        shape = x.shape[1:2] if self.channels else x.shape[1:]  # of a sample's mask
        kept = keeps(draws, self.now.calls, shape.numel(), self.p)  # [n, mask]
        kept = kept.reshape(len(x), *shape, *[1] * (x.dim() - 1 - len(shape)))
        return torch.where(kept, x / (1 - self.p), 0)


def keeps(draws: Tensor, call: int, count: int, p: float) -> Tensor:
    """Which of count values of each sample are kept: [n, count], each with probability 1 - p.

    draws: [n] a random number of each sample. call: which dropout of the pass.
    """
    value = torch.arange(count, device=draws.device)
    sample = mixed(mixed(draws) ^ call)
    return mixed(sample[:, None] ^ mixed(value)) & (RANGE - 1) >= int(p * RANGE)


def seeded(now: Pass, name: str, part: nn.Module) -> nn.Module | None:
    """What stands in the place of a dropout layer in gradient steps."""
    if not isinstance(part, nn.modules.dropout._DropoutNd) or part.p == 0:
        return None
    return SeededDropout(now, name, part.p, KINDS[type(part)])


def check_dropout(name: str, part: nn.Module) -> None:
    """Refuse what draws in a way that cannot be repeated."""
    if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 and type(part) not in KINDS:
        raise InvalidInput(
            f"model: layer {name} is a {type(part).__name__}, whose draws cannot be repeated; use Dropout, "
            "Dropout1d, Dropout2d or Dropout3d, or set its p to 0"
        )
    if isinstance(part, (nn.RNNBase, nn.MultiheadAttention)) and part.dropout > 0:
        raise InvalidInput(
            f"model: layer {name} is a {type(part).__name__} with a dropout of its own, whose draws cannot "
            "be repeated; set that to 0 and add Dropout layers"
        )
