"""Hugging Face datasets as federations, by a client column or by a flwr-datasets partitioner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data.clients import Client
from ifca.data.problems import Complain, Source, refuse
from ifca.data.sources.columns import Columns, with_test_part

NEEDED = "Hugging Face datasets need an extra: pip install 'ifca[hf]'"


def read_hugging_face(name: str) -> Any:
    """A dataset that save_to_disk left in a folder, or one of the hub's by its name."""
    try:
        import datasets
    except ImportError:
        raise InvalidInput(f"{name}: {NEEDED}") from None
    try:
        if Path(name).is_dir():
            return datasets.load_from_disk(name)
        return datasets.load_dataset(name)
    except Exception as reason:
        what = f"{type(reason).__name__}: {' '.join(str(reason).split())[:200]}"
        raise InvalidInput(f"{name}: cannot be loaded as a Hugging Face dataset ({what})") from reason


def dataset_clients(dataset: Any, columns: Columns, complain: Complain = refuse) -> list[Client]:
    """A client for every value of the client column; of a DatasetDict, split test is to test on."""
    if isinstance(dataset, Mapping):
        if "train" not in dataset:
            complain(f"the dataset has no split train (found: {', '.join(dataset)})")
            return []
        train, test = dataset["train"], dataset.get("test")
    else:
        train, test = dataset, None
    if columns.client is None:
        complain(f"which column says whose a row is? Give client (columns: {_names(train)})")
        return []
    parts = [_by_client(part, columns, complain) for part in (train, test) if part is not None]
    own, held_out = parts[0], parts[1] if len(parts) > 1 else {}
    return [_client(name, own.get(name), held_out.get(name), columns) for name in sorted({*own, *held_out})]


def partition_clients(partitioner: Any, columns: Columns, complain: Complain = refuse) -> list[Client]:
    """A client for every partition of a partitioner of flwr-datasets, which has been given its dataset."""
    clients = []
    for i in range(partitioner.num_partitions):
        part = partitioner.load_partition(i)
        samples = _samples(part, columns, f"partition {i}", complain)
        if samples is not None:
            clients.append(_client(str(i), (*samples, np.arange(len(part))), None, columns))
    return clients


Samples = tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]
"""x, y, and the rows of the dataset that they are."""


def _by_client(part: Any, columns: Columns, complain: Complain) -> dict[str, Samples]:
    samples = _samples(part, columns, "the dataset", complain)
    if samples is None:
        return {}
    names = np.array([str(value) for value in part[columns.client]])
    return {
        str(name): (samples[0][mine], samples[1][mine], mine)
        for name in np.unique(names)
        if len(mine := np.flatnonzero(names == name))
    }


def _client(name: str, own: Samples | None, held_out: Samples | None, columns: Columns) -> Client:
    """own: None where it is only tested."""
    x, y, rows = (None, None, None) if own is None else own
    x_test, y_test, test_rows = (None, None, None) if held_out is None else held_out
    where = f"client {name}"
    sources = Source(where, rows), Source(f"{where}, test part", test_rows)
    return with_test_part(Client(x, y, x_test, y_test, name, None, *sources), columns)


def _samples(
    part: Any, columns: Columns, where: str, complain: Complain
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The x [n, ...] and y [n] of a dataset: one column of arrays or images, or several of numbers."""
    label = columns.label or tuple(n for n in ("label", "y", "target") if n in part.column_names)[:1]
    if len(label) != 1:
        complain(f"{where}: which column is the label? Give label (columns: {_names(part)})")
        return None
    wanted = (*label, *columns.features, *([columns.client] if columns.client else []))
    missing = [name for name in wanted if name not in part.column_names]
    for name in missing:
        complain(f"{where}: has no column {name} (found: {_names(part)})")
    if missing:
        return None
    features: Sequence[str] = columns.features or [
        name for name in part.column_names if name not in (*label, columns.client)
    ]
    x = [one for name in features if (one := _column(part, name, where, complain)) is not None]
    y = _column(part, label[0], where, complain)
    if y is None or not x or len(x) < len(features):
        return None
    y = y.astype(np.float64) if columns.kind == "regression" else y
    return x[0] if len(x) == 1 and x[0].ndim > 1 else np.stack(x, 1), y


def _column(part: Any, name: str, where: str, complain: Complain) -> NDArray[Any] | None:
    cells = [np.asarray(cell) for cell in part.with_format(None)[name]]
    shapes = {cell.shape for cell in cells}
    if len(shapes) > 1:
        odd = next(i for i, cell in enumerate(cells) if cell.shape != cells[0].shape)
        complain(
            f"{where}: column {name} has shape {cells[odd].shape} in row {odd}, {cells[0].shape} in row 0"
        )
        return None
    if not cells or cells[0].dtype.kind not in "fiub":
        first = cells[0] if cells else np.array("nothing")
        kind = f"{first.dtype}" if first.ndim else repr(first.item())
        complain(f"{where}: column {name} holds {kind} in row 0; numbers or images are needed")
        return None
    return np.stack(cells)


def _names(part: Any) -> str:
    return ", ".join(part.column_names)
