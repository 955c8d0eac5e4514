"""The samples of clients that ask for predictions: of a file, a folder or a table; labels optional."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data import read_client
from ifca.data.assemble import as_array
from ifca.data.formats.npz_file import read_npz
from ifca.data.preparation import Column, Preparation
from ifca.data.problems import refuse
from ifca.data.sources.columns import Rows, rows_of
from ifca.data.sources.folder import client_files
from ifca.data.sources.prepared_clients import check_cells, check_labels
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import Table, kind_of, name_of, read_table
from ifca.use.trained import Trained


@dataclass(frozen=True)
class Samples:
    """What one client gives."""

    id: str
    where: str
    """What complaints name."""
    x: NDArray[Any]
    """[n, ...] features, prepared but not scaled."""
    y: NDArray[Any] | None
    """[n] labels; None: there are none. Without meaning where a row has none."""
    labelled: NDArray[np.bool_]
    """[n] which rows have a label."""
    rows: NDArray[np.int64]
    """[n] their places in the file, from 0."""
    warnings: tuple[str, ...] = ()


def samples_of(trained: Trained, path: Path, client: str | None = None) -> list[Samples]:
    """The clients of a file, of a folder with a file per client, or of a table with a client column.

    client: that column, where the run has none, or another.
    """
    files = client_files(path) if path.is_dir() else [path]
    found = []
    for file in files:
        if kind_of(file) not in TABLES:
            found.append(_of_arrays(trained, file))
            continue
        table = read_table(file, refuse)
        assert table is not None
        found += _of_table(trained, table, client)
    return found


def _of_arrays(trained: Trained, file: Path) -> Samples:
    content = read_npz(file)
    if "y" not in content and "x" in content:
        x, y = as_array("x", str(file), content["x"]), None
        if x.shape[1:] != trained.input_shape or not len(x):
            shape = x.shape[1:]
            raise InvalidInput(f"{file}: samples have shape {shape}, training had {trained.input_shape}")
    else:
        client = read_client(file, trained.columns())
        x, y = trained.federation([client], str(file), scaled=False).train.arrays(0)
    return Samples(name_of(file), str(file), x, y, np.full(len(x), y is not None), np.arange(len(x)))


def _of_table(trained: Trained, table: Table, client: str | None) -> list[Samples]:
    columns = trained.columns()
    columns = columns if client is None else replace(columns, client=client)
    name = None if client is not None or columns.client in table.columns else name_of(table.file)
    clients = rows_of(table, columns, name, unlabelled=True)
    preparation = columns.preparation
    if preparation is None:  # trained on arrays: all columns are features
        label = clients[0].label
        names = [column for column in clients[0].cells if column not in label]
        preparation = Preparation.of_numbers(names, label, trained.classes is None)
    check_cells(clients, preparation, columns, refuse)
    return [_of_rows(trained, preparation, one) for one in clients]


def _of_rows(trained: Trained, preparation: Preparation, rows: Rows) -> Samples:
    x, y, where = preparation.prepared(rows.cells), None, rows.source.name
    if x.shape[1:] != trained.input_shape:
        shape = x.shape[1:]
        raise InvalidInput(f"{where}: samples have shape {shape}, training had {trained.input_shape}")
    labelled = np.zeros(len(x), bool)
    if rows.label:
        labelled = ~np.any([rows.cells[name].missing for name in rows.label], axis=0)
    if labelled.any():
        check_labels(rows, preparation, refuse, labelled)
        y = np.where(~labelled, 0, preparation.labels(rows.cells).T).T
        y = y.astype(np.int64) if trained.classes is not None else y
    told = [_never_seen(rows, column) for column in preparation.used]
    warnings = tuple(sentence for sentence in told if sentence)
    return Samples(rows.id, where, x, y, labelled, rows.places, warnings)


def _never_seen(rows: Rows, column: Column) -> str:
    """Values of a category that training did not have."""
    unknown = np.flatnonzero(column.unknown(rows.cells[column.name])).tolist()
    if not unknown:
        return ""
    value = rows.cells[column.name].texts[unknown[0]]
    return f"column {column.name} holds {value!r}, which training never saw ({len(unknown)} rows like it)"
