"""From tables to the rows of each client: which column is what, which rows count, which are to test on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ifca.core.random import key_of, shuffled
from ifca.data.cells import Cells
from ifca.data.clients import Client
from ifca.data.fit_preparation import Override
from ifca.data.preparation import Preparation
from ifca.data.problems import Complain, Source, refuse
from ifca.data.sources.table_files import Table, name_of

Kind = Literal["auto", "classification", "regression"]
LABELS = ("y", "label", "target", "outcome", "class", "diagnosis")  # the column's name when nobody says


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what, and how a test part is made."""

    label: tuple[str, ...] = ()
    """The label or target; several: a regression with as many targets. Empty: y, label, target, outcome,
    class or diagnosis."""
    features: tuple[str, ...] = ()
    """Empty: every column that is nothing else."""
    client: str | None = None
    """Whose row it is, where one table holds all clients."""
    test: str | None = None
    """1, true or test: the row is to test on."""
    cluster: str | None = None
    """The true cluster of the client, where it is known."""
    kind: Kind = "auto"
    """auto: words or whole numbers as labels make it a classification, other numbers a regression."""
    classes: int | None = None
    """Number of classes, where labels are class numbers from 0; None: what the labels say."""
    test_share: float | None = None
    """Share of each client's samples kept to test on, where the data name none."""
    seed: int = 0
    """Of that choice."""
    taken_as: Mapping[str, Override] = field(default_factory=dict)
    """What a column is, where that is not left to its values."""
    missing: Literal["fill", "refuse"] = "fill"
    """What is done about missing cells."""
    preparation: Preparation | None = None
    """How columns become features, where that is known; None: it is fitted to the clients."""


@dataclass(frozen=True)
class Rows:
    """The rows of one client, as they stand in its table."""

    id: str
    file: Path
    source: Source
    cells: dict[str, Cells]
    """The columns of features and label."""
    test: NDArray[np.bool_]
    """[n] which rows are to test on."""
    cluster: int | None
    label: tuple[str, ...]
    """Empty: the table has none."""
    places: NDArray[np.int64]
    """[n] where in the table they are, from 0."""
    unlabelled: int
    """Rows that were left out because their label is missing."""


def rows_of(
    table: Table, columns: Columns, name: str | None, complain: Complain = refuse, *, unlabelled: bool = False
) -> list[Rows]:
    """The clients of a table: one with the given name, or those that the client column names.

    unlabelled: keep the rows without a label, and tables without such a column, too.
    """
    if name is not None and columns.client not in table.columns:
        columns = replace(columns, client=None)  # the file is the client
    chosen = _chosen(table, columns, complain, unlabelled)
    if chosen is None:
        return []
    if not len(table.rows):
        complain(f"{table.file}: the client is empty (the table has a header and no rows)")
        return []
    label, features = chosen
    cells = {column: table.cells(column) for column in (*features, *label)}
    test = table.marks(columns.test, complain) if columns.test else None
    clusters = table.numbers(columns.cluster, complain) if columns.cluster else None
    if (columns.test and test is None) or (columns.cluster and clusters is None):
        return []
    counts = np.ones(len(table.rows), bool)
    if not unlabelled:
        counts = ~np.any([cells[column].missing for column in label], axis=0)
    found = []
    for who, mine in _members(table, columns, name, complain):
        where = f"{table.file}" if name is not None else f"{table.file}, client {who}"
        kept = mine[counts[mine]]
        if not len(kept):
            complain(f"{where}: no row has a label (column {', '.join(label)})")
            continue
        source = Source(where, table.rows[kept], table.unit)
        cluster = None if clusters is None else _one(source, clusters[kept], complain)
        marks = _share(who, len(kept), columns) if test is None else test[kept]
        own = {column: one.take(kept) for column, one in cells.items()}
        found.append(Rows(who, table.file, source, own, marks, cluster, label, kept, len(mine) - len(kept)))
    return found


def of_kind(
    y: NDArray[Any], columns: Columns, source: Source, complain: Complain = refuse
) -> NDArray[Any] | None:
    """Labels as class numbers or as targets, where that is said; None: they are no class numbers."""
    if columns.kind == "auto":
        return y
    if columns.kind == "regression":
        return y.astype(np.float64)
    if not (y.ndim == 1 and (y == np.rint(y)).all()):
        i = int(np.flatnonzero(y != np.rint(y))[0]) if y.ndim == 1 else 0
        complain(f"{source.name}: the label in {source.row(i)} is not a whole number")
        return None
    return y.astype(np.int64)


def with_test_part(client: Client, columns: Columns) -> Client:
    """The client with a random share of its samples to test on, where that is asked for and it has none."""
    if client.x_test is not None or client.x is None:
        return client
    return split(client, _share(str(client.id), len(np.asarray(client.x)), columns))


def _share(name: str, n: int, columns: Columns) -> NDArray[np.bool_]:
    """Which of a client's n samples are to test on, by its name and the seed."""
    test = np.zeros(n, bool)
    if columns.test_share is not None and n >= 2:
        key = np.array([key_of(name)], np.uint64)
        order = shuffled(columns.seed, "test-split", np.array([n]), key)[0]
        test[order[: min(n - 1, max(1, round(columns.test_share * n)))]] = True
    return test


def split(client: Client, test: NDArray[np.bool_]) -> Client:
    """The client with some of its samples to test on."""
    if not test.any():
        return client
    x, y, source = np.asarray(client.x), np.asarray(client.y), client.source or Source(f"client {client.id}")
    rows = np.arange(len(x)) if source.rows is None else source.rows
    own, held_out = (Source(source.name, rows[part], source.unit) for part in (~test, test))
    x, y, x_test, y_test = x[~test], y[~test], x[test], y[test]
    return replace(client, x=x, y=y, x_test=x_test, y_test=y_test, source=own, test_source=held_out)


def label_in(table: Table, columns: Columns) -> tuple[str, ...]:
    """The label's columns: those that were named, or one that is called like a label; may be none."""
    lower = {name.casefold(): name for name in reversed(table.columns)}
    return columns.label or tuple(lower[name] for name in LABELS if name in lower)[:1]


def _chosen(
    table: Table, columns: Columns, complain: Complain, unlabelled: bool
) -> tuple[tuple[str, ...], Sequence[str]] | None:
    """The label's and the features' columns; None: one is missing."""
    label = label_in(table, columns)
    if unlabelled and not set(label) <= table.columns.keys():
        label = ()
    if not label and not unlabelled:
        complain(f"{table.file}: which column is the label? Give label (columns: {table.names()})")
        return None
    others = [name for name in (columns.client, columns.test, columns.cluster) if name is not None]
    missing = [name for name in (*label, *others, *columns.features) if name not in table.columns]
    for name in missing:
        near = [f"; did you mean {one}?" for one in get_close_matches(name, table.columns, 1)]
        complain(f"{table.file}: has no column {name} (found: {table.names()}){''.join(near)}")
    features = columns.features or [n for n in table.columns if n not in (*label, *others)]
    if not features and not missing:
        complain(f"{table.file}: no column is left for the features (found: {table.names()})")
    return None if missing or not features else (label, features)


def _members(
    table: Table, columns: Columns, name: str | None, complain: Complain
) -> list[tuple[str, NDArray[np.int64]]]:
    """Clients and their rows, in order of their names."""
    if name is not None or columns.client is None:
        return [(name or name_of(table.file), np.arange(len(table.rows)))]
    names = table.text(columns.client)
    for i, who in enumerate(names):
        if not who:
            complain(f"{table.place(i)}: column {columns.client} is empty: whose row is it?")
    members: dict[str, list[int]] = {}
    for i, who in enumerate(names):
        if who:
            members.setdefault(who, []).append(i)
    return [(who, np.array(members[who])) for who in sorted(members)]


def _one(source: Source, values: NDArray[Any], complain: Complain) -> int | None:
    """The cluster of a client, which must be the same whole number in all its rows."""
    odd = np.flatnonzero((values != values[0]) | (values != np.rint(values)))
    if len(odd):
        where = source.row(int(odd[0]))
        complain(f"{source.name}: cluster must be one whole number, got {values[odd[0]]:g} in {where}")
        return None
    return int(values[0])
