"""Clients and their data, of unequal size, in one flat array each for x and y."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ifca.core.random import key_of
from ifca.core.sampling import set_aside
from ifca.core.types import Data
from ifca.data.preparation import Preparation
from ifca.data.problems import Source


@dataclass(frozen=True)
class Client:
    """One client as a user gives it. uint8 features are read as pixels: x / 255 when used."""

    x: ArrayLike | None  # [n, ...]; None, as y: it is only tested
    y: ArrayLike | None  # [n] class numbers (integers) or targets (floats; [n, outputs] too)
    x_test: ArrayLike | None = None
    y_test: ArrayLike | None = None
    id: str | None = None
    cluster: int | None = None  # the true cluster, where it is known; never used in training
    source: Source | None = None  # where the data come from, for complaints; None: the client is named
    test_source: Source | None = None
    features: tuple[str, ...] | None = None  # names of the features, where they have any
    preparation: Preparation | None = None  # how the columns of a table became these features


@dataclass(frozen=True)
class Clients:
    """The data of m clients, one after the other: client i owns rows offsets[i] to offsets[i + 1]."""

    x: Tensor  # [rows, ...]
    y: Tensor  # [rows, ...]
    offsets: NDArray[np.int64]  # [m + 1]
    ids: tuple[str, ...]
    true_cluster: NDArray[np.int64] | None = None  # [m]

    def __len__(self) -> int:
        """Number of clients, m."""
        return len(self.ids)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Samples of each client, n: [m]."""
        return np.diff(self.offsets)

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """What a client's randomness depends on: its id, not its place in the list."""
        return np.array([key_of(name) for name in self.ids], np.uint64)

    def one(self, i: int, device: torch.device, dtype: torch.dtype) -> Data:
        """The samples of client i, ready to use."""
        rows = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        x, y = features(self.x[rows].to(device), dtype), targets(self.y[rows].to(device), dtype)
        return Data(x, y, torch.ones(len(x), device=device, dtype=dtype))

    def arrays(self, i: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples x, y of client i as they were given."""
        rows = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        return self.x[rows].cpu().numpy(), self.y[rows].cpu().numpy()

    def side_by_side(self, who: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
        """Some clients' x and y [c, longest, ...] as they are stored, and which rows are theirs [c, longest].

        Padding repeats a client's first row. Neighbours of one size are not copied.
        """
        sizes, start = self.sizes[who], self.offsets[who]
        n = int(sizes.max())
        if sizes.min() == n and (np.diff(start) == n).all():
            rows = slice(int(start[0]), int(start[-1]) + n)
            x, y = (part[rows].view(len(who), n, *part.shape[1:]) for part in (self.x, self.y))
            return x, y, torch.ones(len(who), n, dtype=torch.bool)
        present = np.arange(n) < sizes[:, None]
        index = torch.from_numpy(np.where(present, start[:, None] + np.arange(n), start[:, None]))
        index = index.to(self.x.device)
        return self.x[index], self.y[index], torch.from_numpy(present)

    def padded(self, who: NDArray[np.int64], device: torch.device, dtype: torch.dtype) -> Data:
        """The samples of some clients side by side, ready to use: [c, longest, ...]."""
        x, y, present = self.side_by_side(who)
        x, y = features(x.to(device), dtype), targets(y.to(device), dtype)
        return Data(x, y, present.to(device, dtype))

    def to(self, device: torch.device) -> Clients:
        """The same clients with their data on a device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    @property
    def nbytes(self) -> int:
        """Bytes of all data."""
        return self.x.numel() * self.x.element_size() + self.y.numel() * self.y.element_size()

    def parted(self, seed: int) -> tuple[Clients, Clients]:
        """The same clients with the samples that they train on, and with those that they set aside."""
        aside = set_aside(seed, self.keys, self.sizes)
        every = [np.arange(size) for size in self.sizes]
        kept = [np.delete(rows, some) for rows, some in zip(every, aside, strict=True)]
        return self._with_rows(kept), self._with_rows(aside)

    def _with_rows(self, rows: list[NDArray[np.int64]]) -> Clients:
        """rows: of each client's samples, those that it keeps."""
        offsets = np.concatenate([[0], np.cumsum([len(some) for some in rows])]).astype(np.int64)
        chosen = np.concatenate([start + some for start, some in zip(self.offsets, rows, strict=False)])
        index = torch.from_numpy(chosen.astype(np.int64)).to(self.x.device)
        return Clients(self.x[index], self.y[index], offsets, self.ids, self.true_cluster)

    def subset(self, who: Sequence[int]) -> Clients:
        """Some of the clients, in the given order."""
        rows = np.concatenate([np.arange(self.offsets[i], self.offsets[i + 1]) for i in who])
        index = torch.from_numpy(rows)
        true = None if self.true_cluster is None else self.true_cluster[list(who)]
        offsets = np.concatenate([[0], np.cumsum(self.sizes[list(who)])]).astype(np.int64)
        return Clients(self.x[index], self.y[index], offsets, tuple(self.ids[i] for i in who), true)


def features(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Inputs of a model: bytes are pixels, scaled to [0, 1]; everything else keeps its value."""
    return x.to(dtype) / 255 if x.dtype == torch.uint8 else x.to(dtype)


def targets(y: Tensor, dtype: torch.dtype) -> Tensor:
    """Class numbers stay integers; regression targets take the model's precision."""
    return y.to(dtype) if y.is_floating_point() else y
