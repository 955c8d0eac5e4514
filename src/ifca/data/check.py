"""Put clients together into a federation, refusing by name what cannot be trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ifca.core.errors import InvalidInput
from ifca.data.clients import Client, Clients

MOST_CLASSES = 10_000  # more than this must be said


def put_together(
    clients: Sequence[Client], classes: int | None
) -> tuple[Clients, Clients | None, int | None]:
    """Checked clients -> training clients, test clients, number of classes.

    Class numbers as y make it a classification, float targets a regression (None classes).
    """
    if not clients:
        raise InvalidInput("a federation needs at least one client")
    ids = [_id(str(i) if c.id is None else str(c.id)) for i, c in enumerate(clients)]
    twice = {name for name in ids if ids.count(name) > 1} if len(set(ids)) < len(ids) else set()
    if twice:
        raise InvalidInput(f"client ids must differ, but {sorted(twice)[0]} stands twice")
    train = [arrays(f"client {name}", c.x, c.y) for name, c in zip(ids, clients, strict=True)]
    test = [
        None
        if c.x_test is None and c.y_test is None
        else arrays(f"client {name}, test part", c.x_test, c.y_test)
        for name, c in zip(ids, clients, strict=True)
    ]
    tested = [i for i, part in enumerate(test) if part is not None]
    parts = [*zip(ids, train, strict=True), *[(ids[i] + ", test part", test[i]) for i in tested]]
    _same_kind([(f"client {name}", part) for name, part in parts if part is not None])
    classes = _classes([(f"client {name}", part) for name, part in parts if part is not None], classes)
    known = [c.cluster is not None for c in clients]
    if any(known) and not all(known):
        raise InvalidInput(
            f"true clusters are given for some clients but not for client {ids[known.index(False)]}"
        )
    for name, client in zip(ids, clients, strict=True):
        if client.cluster is not None and not isinstance(client.cluster, (int, np.integer)):
            raise InvalidInput(f"client {name}: cluster must be a whole number, got {client.cluster!r}")
    true = np.array([c.cluster for c in clients], np.int64) if all(known) else None
    together = _concatenate(train, ids, true)
    if not tested:
        return together, None, classes
    some = [part for part in test if part is not None]
    held_out = _concatenate(some, [ids[i] for i in tested], None if true is None else true[tested])
    return together, held_out, classes


def arrays(where: str, x: ArrayLike | None, y: ArrayLike | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """The arrays x and y of one client, checked; where names the client or its file in a complaint."""
    if x is None or y is None:
        raise InvalidInput(f"{where}: x and y must both be given")
    x, y = as_array("x", where, x), as_array("y", where, y)
    if x.ndim == 0 or y.ndim == 0 or len(x) == 0:
        raise InvalidInput(f"{where}: the client is empty (x has shape {x.shape}, y has shape {y.shape})")
    if len(x) != len(y):
        raise InvalidInput(f"{where}: x has {len(x)} samples but y has {len(y)}")
    if x.ndim == 1 or x[0].size == 0:
        raise InvalidInput(
            f"{where}: x must have a row per sample and a column per feature, got shape {x.shape}"
        )
    if y.dtype.kind in "iub":
        y = y.astype(np.int64)
        if y.ndim != 1:
            raise InvalidInput(f"{where}: class numbers y must be one per sample, got shape {y.shape}")
        if y.min() < 0:
            raise InvalidInput(f"{where}: y has the label {y.min()} in row {y.argmin()}; labels start at 0")
    return x, y


def as_array(name: str, where: str, values: ArrayLike) -> NDArray[Any]:
    """Numbers as a numpy array; torch tensors too."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values
    try:
        array = np.asarray(values)
    except ValueError as reason:
        raise InvalidInput(f"{where}: {name} must be an array of numbers ({reason})") from reason
    if array.dtype.kind not in "fiub":
        raise InvalidInput(f"{where}: {name} must be numbers, got {array.dtype}")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0]) if array.ndim else 0
            raise InvalidInput(f"{where}: {name} has a NaN or infinite value in row {row}")
        return array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, copy=False)
    return array


def _id(name: str) -> str:
    """An id that can be written to a table; bytes that are no text are spelled out."""
    if any(ord(letter) < 32 for letter in name):
        raise InvalidInput(f"client {name!r}: an id must not hold line breaks or control characters")
    return name.encode("utf-8", "backslashreplace").decode()


def _same_kind(parts: list[tuple[str, tuple[NDArray[Any], NDArray[Any]]]]) -> None:
    first, (x0, y0) = parts[0]
    for where, (x, y) in parts[1:]:
        if x.shape[1:] != x0.shape[1:] or y.shape[1:] != y0.shape[1:]:
            shapes = f"{x.shape[1:]} and y {y.shape[1:]}"
            raise InvalidInput(
                f"{where}: samples have x of shape {shapes}, "
                f"but {first} has {x0.shape[1:]} and {y0.shape[1:]}"
            )
        pixels = (x.dtype == np.uint8) != (x0.dtype == np.uint8)  # bytes are scaled, other numbers are not
        if pixels or y.dtype.kind != y0.dtype.kind:
            raise InvalidInput(
                f"{where}: x, y are of type {x.dtype}, {y.dtype}, but {first} has {x0.dtype}, {y0.dtype}"
            )


def _classes(parts: list[tuple[str, tuple[NDArray[Any], NDArray[Any]]]], classes: int | None) -> int | None:
    if parts[0][1][1].dtype.kind == "f":
        if classes is not None:
            raise InvalidInput(f"classes is {classes}, but the targets y are floats (regression)")
        return None
    if classes is None:
        where, y = max(((where, y) for where, (_, y) in parts), key=lambda part: int(part[1].max()))
        if y.max() >= MOST_CLASSES:
            raise InvalidInput(
                f"{where}: y has the label {y.max()} in row {y.argmax()}; if that is right, give classes"
            )
        return max(2, int(y.max()) + 1)
    for where, (_, y) in parts:
        if y.max() >= classes:
            label, row = y.max(), y.argmax()
            raise InvalidInput(f"{where}: y has the label {label} in row {row}, but classes is {classes}")
    return classes


def _concatenate(
    parts: Sequence[tuple[NDArray[Any], NDArray[Any]]], ids: Sequence[str], true: NDArray[np.int64] | None
) -> Clients:
    offsets = np.concatenate([[0], np.cumsum([len(x) for x, _ in parts])]).astype(np.int64)
    x = torch.from_numpy(np.concatenate([x for x, _ in parts]))
    y = torch.from_numpy(np.concatenate([y for _, y in parts]))
    return Clients(x, y, offsets, tuple(ids), true)
