"""Processes that train one federation together (torchrun): what they exchange, and what if one is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.errors import RankLost

PATIENCE = timedelta(hours=6)  # that a rank waits for the others: one may write a long report
LOST = (
    "another rank of this run ended or cannot be reached; 'ifca resume' goes on from the last checkpoint, "
    "with any number of ranks"
)
Parts = dict[str, Tensor]
"""Name -> tensor, of the same shapes on every rank."""


@dataclass(frozen=True)
class Ranks:
    """One process among those that were started together."""

    rank: int
    size: int

    @property
    def leads(self) -> bool:
        """Whether it is the one that writes files and speaks to the user."""
        return self.rank == 0

    def shares(self, cost: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The numbers of each rank's clients, rising: every size-th by cost, so that shares are even."""
        order = np.argsort(-cost, kind="stable")
        return [np.sort(order[rank :: self.size]) for rank in range(self.size)]

    def summed(self, parts: Parts) -> Parts:
        """The sum over all ranks of each part, in double precision: one all-reduce of all numbers."""
        device = max((part.device for part in parts.values()), key=lambda device: device.type == "cuda")
        flat = torch.cat([part.reshape(-1).to(device, torch.float64) for part in parts.values()])
        with _hearing():
            dist.all_reduce(flat)
        pieces = torch.split(flat, [part.numel() for part in parts.values()])
        return {
            name: piece.view(part.shape).to(part.device, part.dtype)
            for (name, part), piece in zip(parts.items(), pieces, strict=True)
        }

    def rows(self, mine: Tensor, whose: list[NDArray[np.int64]]) -> Tensor:
        """Rows of all ranks in one tensor: [those of all, ...]. mine: [c, ...], those of this rank.

        whose: of each rank, the places of its rows.
        """
        padded = mine.new_zeros((max(map(len, whose)), *mine.shape[1:]))
        padded[: len(mine)] = mine
        heard = [torch.empty_like(padded) for _ in whose]
        with _hearing():
            dist.all_gather(heard, padded)
        whole = mine.new_zeros((sum(map(len, whose)), *mine.shape[1:]))
        for places, part in zip(whose, heard, strict=True):
            whole[torch.from_numpy(places).to(whole.device)] = part[: len(places)]
        return whole

    def told(self, value: Any = None) -> Any:
        """What the leading rank says to all."""
        said = [value]
        with _hearing():
            dist.broadcast_object_list(said, src=0, device=torch.device("cpu"))
        return said[0]


_now: list[Ranks] = []


def current() -> Ranks | None:
    """The ranks that this process belongs to; None: it is alone."""
    return _now[-1] if _now else None


def launched() -> bool:
    """Whether torchrun (or a launcher like it) has started several processes of this command."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


@contextmanager
def joined() -> Iterator[Ranks]:
    """Together with the other ranks; where there are GPUs, each with the one of its local number."""
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    with _hearing():
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", timeout=PATIENCE)
    _now.append(Ranks(dist.get_rank(), dist.get_world_size()))
    try:
        yield _now[-1]
    finally:
        _now.clear()
        dist.destroy_process_group()


@contextmanager
def _hearing() -> Iterator[None]:
    """A rank that is lost is one sentence."""
    try:
        yield
    except RuntimeError as reason:  # gloo and nccl have no kind of their own for it
        raise RankLost(LOST) from reason
