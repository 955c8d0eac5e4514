"""Where rounds of the fused path are computed: memory that stays where it is, and the CUDA graphs over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ifca.engines.cuda.fused_rows import FusedRows
from ifca.engines.cuda.fused_sums import Judged, Moved, Turns

Said = tuple[Tensor, Tensor, Tensor]
"""What the identity pass says, in main memory: identities, losses, the rows of each cluster."""


class Place:
    """For rounds of about so many clients, rows and tiles."""

    def __init__(self, turns: Turns, *, every: bool) -> None:
        self.turns, self.every, self.buffers = turns, every, dict[str, Tensor]()
        self.warm = False  # whether the kernels that it needs are compiled
        self.captured: Captured | None = None
        self._known: Tensor | None = None
        self._ordered: tuple[Tensor, Tensor] | None = None

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer that stays where it is, as CUDA graphs need."""
        if name not in self.buffers:
            self.buffers[name] = torch.empty(shape, dtype=dtype, device=self.turns.a.device)
        return self.buffers[name]

    def send(self, known: Tensor) -> None:
        """The one model that each participant is sent, or -1."""
        if self._known is None or not torch.equal(self._known, known):
            self.turns.known[: len(known)].copy_(known)
            self._known = known.clone()

    def in_order(self, data: FusedRows, judged: Judged, identity: Tensor) -> Tensor:
        """X by cluster; of everybody it is gathered anew only where somebody has changed its cluster."""
        if self._ordered is not None and torch.equal(self._ordered[0], identity):
            return self._ordered[1]
        self._ordered = None
        x = data.parts(self.turns.x, judged.order)
        if self.every:
            self._ordered = identity, x
        return x


class Captured:
    """The identity pass and the steps as graphs: the steps do not wait for the host."""

    def __init__(self, judge: Callable[[], Judged], steps: Callable[[Judged], Moved]) -> None:
        torch.cuda.synchronize()
        self._first, self._second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        self._heard: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.graph(self._first):
            self.judged = judge()
        self._said = [
            torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in told(self.judged)
        ]
        with torch.cuda.graph(self._second):
            self.moved = steps(self.judged)

    def replay(self) -> Said:
        """Start a round, and return what the identity pass says as soon as it does."""
        self._first.replay()
        for mine, part in zip(self._said, told(self.judged), strict=True):
            mine.copy_(part, non_blocking=True)
        self._heard.record()
        self._second.replay()
        self._heard.synchronize()
        identity, losses, members = (part.clone() for part in self._said)
        return identity, losses, members


def told(judged: Judged) -> Said:
    """What the host is told, on the GPU still."""
    return judged.identity, judged.losses, judged.members
