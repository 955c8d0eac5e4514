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

from ifca.core.buckets import rows_of
from ifca.core.random import key_of
from ifca.core.sampling import is_aside
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
    rows: Tensor | None = None  # where their rows are in x and y; None: as they stand, all of them

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
        x, y = self.at(slice(int(self.offsets[i]), int(self.offsets[i + 1])))
        x, y = features(x.to(device), dtype), targets(y.to(device), dtype)
        return Data(x, y, torch.ones(len(x), device=device, dtype=dtype))

    def arrays(self, i: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples x, y of client i as they were given."""
        x, y = self.at(slice(int(self.offsets[i]), int(self.offsets[i + 1])))
        return x.cpu().numpy(), y.cpu().numpy()

    def at(self, rows: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Samples x, y by their numbers among those of all clients."""
        index = rows if self.rows is None else self.rows[rows]
        index = index if isinstance(index, slice) else index.to(self.x.device)
        return self.x[index], self.y[index]

    def places(self, who: NDArray[np.int64], width: int) -> slice | Tensor:
        """Where the rows of some clients are in x and y, padded to a width by each one's first: [c x width].

        A slice of neighbours that have this size, which need not be copied.
        """
        sizes, start = self.sizes[who], self.offsets[who]
        if self.rows is None and sizes.min() == width and (np.diff(start) == width).all():
            return slice(int(start[0]), int(start[-1]) + width)
        at = np.arange(width)
        index = torch.from_numpy((start[:, None] + np.where(at < sizes[:, None], at, 0)).reshape(-1))
        return index if self.rows is None else self.rows[index]

    def present(self, who: NDArray[np.int64], width: int) -> Tensor:
        """Which of such rows are no padding: [c, width]."""
        return torch.from_numpy(np.arange(width) < self.sizes[who][:, None])

    def padded(
        self, who: NDArray[np.int64], device: torch.device, dtype: torch.dtype, width: int | None = None
    ) -> Data:
        """The samples of some clients side by side, ready to use: [c, width, ...]; None: the longest's."""
        width = int(self.sizes[who].max()) if width is None else width
        rows = self.places(who, width)
        index = rows if isinstance(rows, slice) else rows.to(self.x.device)
        x, y = (part[index].view(len(who), width, *part.shape[1:]) for part in (self.x, self.y))
        x, y = features(x.to(device), dtype), targets(y.to(device), dtype)
        return Data(x, y, self.present(who, width).to(device, dtype))

    def to(self, device: torch.device) -> Clients:
        """The same clients with their data on a device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    @property
    def nbytes(self) -> int:
        """Bytes of all data."""
        return self.x.numel() * self.x.element_size() + self.y.numel() * self.y.element_size()

    def parted(self, seed: int, *, copied: bool = True) -> tuple[Clients, Clients]:
        """The same clients with the samples that they train on, and with those that they set aside.

        copied: each with its own copy of the samples; else both look into these.
        """
        waits = is_aside(seed, self.keys, self.sizes)
        return self.only(~waits, copied=copied), self.only(waits, copied=copied)

    def only(self, kept: NDArray[np.bool_], *, copied: bool = True) -> Clients:
        """The same clients with some of their samples. kept: [samples]; copied: as in parted."""
        before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
        index = torch.from_numpy(np.flatnonzero(kept))
        return self._of(index, before[self.offsets], self.ids, self.true_cluster, self.keys, copied)

    def subset(self, who: Sequence[int] | NDArray[np.int64]) -> Clients:
        """Some of the clients, in the given order."""
        some = np.asarray(who, np.int64)
        index = torch.from_numpy(rows_of(self.offsets, some))
        true = None if self.true_cluster is None else self.true_cluster[some]
        offsets = np.concatenate([[0], np.cumsum(self.sizes[some])]).astype(np.int64)
        ids = tuple(self.ids[i] for i in some)
        return self._of(index, offsets, ids, true, self.keys[some], self.rows is None)

    def _of(
        self,
        index: Tensor,
        offsets: NDArray[np.int64],
        ids: tuple[str, ...],
        true: NDArray[np.int64] | None,
        keys: NDArray[np.uint64],
        copied: bool,
    ) -> Clients:
        """Clients with some of the samples. index: their numbers; keys: known already."""
        if copied:
            made = Clients(*self.at(index), offsets, ids, true)
        else:
            rows = index if self.rows is None else self.rows[index]
            made = Clients(self.x, self.y, offsets, ids, true, rows)
        made.__dict__["keys"] = keys
        return made


def features(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Inputs of a model: bytes are pixels, scaled to [0, 1]; everything else keeps its value."""
    return x.to(dtype) / 255 if x.dtype == torch.uint8 else x.to(dtype)


def targets(y: Tensor, dtype: torch.dtype) -> Tensor:
    """Class numbers stay integers; regression targets take the model's precision."""
    return y.to(dtype) if y.is_floating_point() else y
