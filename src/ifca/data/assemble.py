"""Put clients together into a federation, complaining by name of what cannot be trained on."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ifca.data.clients import Client, Clients
from ifca.data.problems import Complain, Source, refuse

MOST_CLASSES = 10_000  # more than this must be said


class Part(NamedTuple):
    """Checked samples, and where they come from."""

    source: Source
    x: NDArray[Any]
    y: NDArray[Any]

    @property
    def kind(self) -> tuple[Any, ...]:
        """What all clients must have in common; bytes are scaled, other numbers are not."""
        return self.x.shape[1:], self.y.shape[1:], self.x.dtype == np.uint8, self.y.dtype.kind


class Checked(NamedTuple):
    """A client whose arrays were looked at."""

    id: str
    train: Part | None  # None: it is only tested
    test: Part | None
    cluster: int | None

    @property
    def parts(self) -> list[Part]:
        """What there is."""
        return [part for part in (self.train, self.test) if part is not None]


def put_together(
    clients: Sequence[Client], classes: int | None, complain: Complain = refuse
) -> tuple[Clients, Clients | None, int | None] | None:
    """Checked clients -> training clients, test clients, number of classes. None: nothing is left.

    Class numbers as y make it a classification, float targets a regression (None classes). Where complain
    returns, the client is left out.
    """
    checked = _named_apart(
        [c for i, one in enumerate(clients) if (c := _checked(i, one, complain))], complain
    )
    checked = _same_kind(checked, complain)
    checked = _clusters_known(checked, complain)
    known = clients[0].preparation if clients else None
    if classes is None and known is not None and known.class_names is not None:
        classes = len(known.class_names)
    checked = _few_classes(checked, classes, complain)
    trained = [(c, part) for c in checked if (part := c.train) is not None]
    tested = [(c, part) for c in checked if (part := c.test) is not None]
    if not trained:
        if not clients or checked:
            complain("a federation needs at least one client" + (" to train on" if clients else ""))
        return None  # what was wrong with each has been said
    if trained[0][1].y.dtype.kind == "f":
        if classes is not None:
            complain(f"classes is {classes}, but the targets y are floats (regression)")
        classes = None
    elif classes is None:
        classes = max(2, int(max(part.y.max() for c in checked for part in c.parts)) + 1)
    return _concatenate(trained), _concatenate(tested) if tested else None, classes


def arrays(
    source: Source, x: ArrayLike | None, y: ArrayLike | None, complain: Complain = refuse
) -> Part | None:
    """The arrays x and y of one client, checked; None: not usable."""
    where = source.name
    if x is None or y is None:
        complain(f"{where}: x and y must both be given")
        return None
    x, y = _numbers("x", source, x, complain), _numbers("y", source, y, complain)
    if x is None or y is None:
        return None
    if x.ndim == 0 or y.ndim == 0 or len(x) == 0:
        complain(f"{where}: the client is empty (x has shape {x.shape}, y has shape {y.shape})")
        return None
    if len(x) != len(y):
        complain(f"{where}: x has {len(x)} samples but y has {len(y)}")
        return None
    if x.ndim == 1 or x[0].size == 0:
        complain(f"{where}: x must have a row per sample and a column per feature, got shape {x.shape}")
        return None
    if y.dtype.kind in "iub":
        y = y.astype(np.int64)
        if y.ndim != 1:
            complain(f"{where}: class numbers y must be one per sample, got shape {y.shape}")
            return None
        wrong = np.flatnonzero(y < 0)
        for i in wrong.tolist():
            complain(f"{where}: y has the label {y[i]} in {source.row(i)}; labels start at 0")
        if len(wrong):
            return None
    return Part(source, x, y)


def as_array(name: str, where: str, values: ArrayLike) -> NDArray[Any]:
    """Numbers as a numpy array; torch tensors too."""
    array = _numbers(name, Source(where), values, refuse)
    assert array is not None
    return array


def _numbers(name: str, source: Source, values: ArrayLike, complain: Complain) -> NDArray[Any] | None:
    where = source.name
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values
    try:
        array = np.asarray(values)
    except ValueError as reason:
        complain(f"{where}: {name} must be an array of numbers ({reason})")
        return None
    if array.dtype.kind not in "fiub":
        complain(f"{where}: {name} must be numbers, got {array.dtype}")
        return None
    if array.dtype.kind == "f":
        bad = np.argwhere(~np.isfinite(array))
        for i in dict.fromkeys(bad[:, 0].tolist() if array.ndim else [0] * len(bad)):
            complain(f"{where}: {name} has a NaN or infinite value in {source.row(i)}")
        if len(bad):
            return None
        return array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, copy=False)
    return array


def _checked(i: int, client: Client, complain: Complain) -> Checked | None:
    name = str(i) if client.id is None else str(client.id)
    if any(unicodedata.category(letter) == "Cc" for letter in name):
        complain(f"client {name!r}: an id must not hold line breaks or control characters")
        return None
    name = name.encode("utf-8", "backslashreplace").decode()  # bytes that are no text are spelled out
    source = client.source or Source(f"client {name}")
    test_source = client.test_source or Source(f"{source.name}, test part")
    cluster: Any = client.cluster
    if cluster is not None and not isinstance(cluster, (int, np.integer)):
        complain(f"{source.name}: cluster must be a whole number, got {cluster!r}")
        return None
    only_tested = client.x is None and client.y is None and client.x_test is not None
    train = None if only_tested else arrays(source, client.x, client.y, complain)
    test = None
    if client.x_test is not None or client.y_test is not None:
        test = arrays(test_source, client.x_test, client.y_test, complain)
        if test is None:
            return None
    return None if train is None and not only_tested else Checked(name, train, test, client.cluster)


def _named_apart(checked: list[Checked], complain: Complain) -> list[Checked]:
    seen: dict[str, Checked] = {}
    for client in checked:
        if client.id in seen:
            complain(f"client ids must differ, but {client.id} stands twice")
        seen.setdefault(client.id, client)
    return list(seen.values())


def _same_kind(checked: list[Checked], complain: Complain) -> list[Checked]:
    """Those that are like most of them."""
    if not checked:
        return []
    usual = Counter(c.parts[0].kind for c in checked).most_common(1)[0][0]
    first = next(c.parts[0] for c in checked if c.parts[0].kind == usual)
    kept = []
    for client in checked:
        odd = next((part for part in client.parts if part.kind != usual), None)
        if odd is None:
            kept.append(client)
        elif odd.kind[:2] != usual[:2]:
            shapes = f"{odd.x.shape[1:]} and y {odd.y.shape[1:]}"
            complain(
                f"{odd.source.name}: samples have x of shape {shapes}, "
                f"but {first.source.name} has {first.x.shape[1:]} and {first.y.shape[1:]}"
            )
        else:
            types = f"{first.x.dtype}, {first.y.dtype}"
            complain(
                f"{odd.source.name}: x, y are of type {odd.x.dtype}, {odd.y.dtype}, "
                f"but {first.source.name} has {types}"
            )
    return kept


def _clusters_known(checked: list[Checked], complain: Complain) -> list[Checked]:
    """True clusters of all clients or of none."""
    unknown = [c for c in checked if c.cluster is None]
    if not unknown or len(unknown) == len(checked):
        return checked
    for client in unknown:
        complain(f"true clusters are given for some clients but not for client {client.id}")
    return [c for c in checked if c.cluster is not None]


def _few_classes(checked: list[Checked], classes: int | None, complain: Complain) -> list[Checked]:
    """Those whose labels are below the number of classes, or where nobody said it below a usual one."""
    limit = MOST_CLASSES if classes is None else classes
    advice = "; if that is right, give classes" if classes is None else f", but classes is {classes}"
    kept = []
    for client in checked:
        wrong = False
        for source, _, y in client.parts if client.parts[0].y.dtype.kind != "f" else ():
            places = np.flatnonzero(y >= limit).tolist()
            wrong = wrong or bool(places)
            for i in places:
                complain(f"{source.name}: y has the label {y[i]} in {source.row(i)}{advice}")
        kept += [] if wrong else [client]
    return kept


def _concatenate(some: Sequence[tuple[Checked, Part]]) -> Clients:
    parts = [part for _, part in some]
    offsets = np.concatenate([[0], np.cumsum([len(part.x) for part in parts])]).astype(np.int64)
    x = torch.from_numpy(np.concatenate([part.x for part in parts]))
    y = torch.from_numpy(np.concatenate([part.y for part in parts]))
    known = some[0][0].cluster is not None
    true = np.array([client.cluster for client, _ in some], np.int64) if known else None
    return Clients(x, y, offsets, tuple(client.id for client, _ in some), true)
