"""Clients of a run that is finished already, some of whom may have no labels now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data.assemble import as_array
from ifca.data.clients import Client
from ifca.data.formats.npz_file import read_npz
from ifca.data.problems import refuse
from ifca.data.sources.columns import LABELS, Columns, Rows, rows_of, with_test_part
from ifca.data.sources.folder import client_files, read_client
from ifca.data.sources.prepared_clients import check_cells, clients_of
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import Table, kind_of, name_of, read_table

NEAR = 0.8  # how alike the names of two columns are, of 1, that one is the other misspelt


@dataclass(frozen=True)
class Unlabelled:
    """The samples of a client that has no labels, prepared but not scaled."""

    id: str
    x: NDArray[Any]  # [n, ...]


def partly_labelled(path: Path, columns: Columns, said: Columns) -> tuple[list[Client], list[Unlabelled]]:
    """The clients of a file, of a folder of files, or of a table with a client column: with labels, without.

    columns: with the preparation of the run; said: what its user said of them. A row without a label is left
    out where others have one.
    """
    if not path.exists():
        raise InvalidInput(f"{path}: no such file or folder")
    files = client_files(path) if path.is_dir() else [path]
    if kind_of(files[0]) in TABLES:
        return _of_tables(files, columns, said)
    clients, without = [], []
    for file in files:
        content = read_npz(file)
        if "y" in content or "x" not in content:
            clients.append(with_test_part(read_client(file, columns), columns))
        else:
            for name in content:
                if name.casefold() in LABELS or name.casefold().removesuffix("s") in LABELS:
                    raise InvalidInput(_misspelt(f"{file}: has no array y", name, "y"))
            without.append(Unlabelled(name_of(file), as_array("x", str(file), content["x"])))
    return clients, without


def _of_tables(files: list[Path], columns: Columns, said: Columns) -> tuple[list[Client], list[Unlabelled]]:
    labelled: list[Rows] = []
    without: list[Unlabelled] = []
    for file in files:
        table = read_table(file, refuse)
        assert table is not None
        if not said.features:  # else any others may be there, which the run left alone
            _check_label(table, columns, said)
        name = None if columns.client in table.columns else name_of(file)
        for rows in rows_of(table, columns, name, unlabelled=True):
            has = _has_label(rows)
            if has.any():
                labelled.append(_taken(rows, has))
            elif columns.preparation is None:
                raise InvalidInput(f"{rows.source.name}: no row has a label, and the run knew no columns")
            else:
                check_cells([rows], columns.preparation, columns, refuse)
                without.append(Unlabelled(rows.id, columns.preparation.prepared(rows.cells)))
    return clients_of(labelled, columns), without


def _check_label(table: Table, columns: Columns, said: Columns) -> None:
    """Refuse a table whose label is misspelt: its client would be taken for one without labels."""
    used = () if columns.preparation is None else columns.preparation.columns
    known = {said.client, said.test, said.cluster, columns.client, *(one.name for one in used)}
    others = {name.casefold(): name for name in set(table.columns) - known - set(columns.label)}
    for name in columns.label:
        near = get_close_matches(name.casefold(), others, 1, NEAR)
        if near and name not in table.columns:
            raise InvalidInput(_misspelt(f"{table.file}: has no column {name}", others[near[0]], name))


def _misspelt(lacks: str, other: str, name: str) -> str:
    return f"{lacks}, but {other}; if that is the label call it {name}, if not take it out"


def _has_label(rows: Rows) -> NDArray[np.bool_]:
    """[n] which rows have one."""
    if not rows.label:
        return np.zeros(len(rows.places), bool)
    has = np.ones(len(rows.places), bool)
    for name in rows.label:
        has &= ~rows.cells[name].missing
    return has


def _taken(rows: Rows, kept: NDArray[np.bool_]) -> Rows:
    """Some of a client's rows."""
    if kept.all():
        return rows
    places = np.flatnonzero(kept)
    source = rows.source
    if source.rows is not None:
        source = replace(source, rows=source.rows[places])
    cells = {name: one.take(places) for name, one in rows.cells.items()}
    test, where = rows.test[places], rows.places[places]
    if test.all():
        raise InvalidInput(f"{source.name}: all rows with a label are to test on")
    left = rows.unlabelled + int((~kept).sum())
    return replace(rows, cells=cells, source=source, test=test, places=where, unlabelled=left)
