"""From the rows of tables to clients: which column is what, what is kept to test on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ifca.core.random import key_of, shuffled
from ifca.data.clients import Client
from ifca.data.problems import Complain, Source, refuse
from ifca.data.sources.table_files import Table

Kind = Literal["auto", "classification", "regression"]
LABELS = ("y", "label", "target")  # what the column may be called when nobody says


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what, and how a test part is made."""

    label: tuple[str, ...] = ()
    """The label or target; several: a regression with as many targets. Empty: y, label or target."""
    features: tuple[str, ...] = ()
    """Empty: every column that is nothing else."""
    client: str | None = None
    """Whose row it is, where one table holds all clients."""
    test: str | None = None
    """1, true or test: the row is to test on."""
    cluster: str | None = None
    """The true cluster of the client, where it is known."""
    kind: Kind = "auto"
    """auto: whole numbers as labels make it a classification, others a regression."""
    test_share: float | None = None
    """Share of each client's samples kept to test on, where the data name none."""
    seed: int = 0
    """Of that choice."""


@dataclass(frozen=True)
class Rows:
    """The samples of one client, before it is known whether all clients' labels are whole numbers."""

    id: str
    source: Source
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    whole: bool
    test: NDArray[np.bool_] | None
    cluster: int | None
    features: tuple[str, ...]


def rows_of(table: Table, columns: Columns, name: str | None, complain: Complain = refuse) -> list[Rows]:
    """The clients of a table: one with the given name, or those that the client column names."""
    if name is not None and columns.client not in table.columns:
        columns = replace(columns, client=None)  # the file is the client
    chosen = _chosen(table, columns, complain)
    if chosen is None:
        return []
    if not len(table.rows):
        complain(f"{table.file}: the client is empty (the table has a header and no rows)")
        return []
    label, features = chosen
    x, y = ([table.numbers(column, complain) for column in group] for group in (features, label))
    test = table.marks(columns.test, complain) if columns.test else None
    clusters = table.numbers(columns.cluster, complain) if columns.cluster else None
    if any(c is None for c in (*x, *y)) or (columns.test and test is None):
        return []
    if columns.cluster and clusters is None:
        return []
    together = np.stack([c for c in x if c is not None], 1)
    targets = np.stack([c for c in y if c is not None], 1)
    targets = targets[:, 0] if len(label) == 1 else targets
    whole = len(label) == 1 and table.whole(label[0])
    found = []
    for who, mine in _members(table, columns, name, complain):
        where = f"{table.file}" if name is not None else f"{table.file}, client {who}"
        source = Source(where, table.rows[mine], table.unit)
        cluster = None if clusters is None else _one(source, clusters[mine], complain)
        marks = None if test is None else test[mine]
        found.append(Rows(who, source, together[mine], targets[mine], whole, marks, cluster, tuple(features)))
    return found


def features_of(table: Table, features: Sequence[str]) -> NDArray[np.float64]:
    """The features of a table without labels; empty: all columns."""
    missing = [name for name in features if name not in table.columns]
    if missing:
        refuse(f"{table.file}: has no column {missing[0]} (found: {table.names()})")
    columns = [table.numbers(name, refuse) for name in features or table.columns]
    return np.stack([column for column in columns if column is not None], 1)


def clients_of(rows: Iterable[Rows], columns: Columns, complain: Complain = refuse) -> list[Client]:
    """Clients, their labels as class numbers or as targets, their test parts apart."""
    rows = list(rows)
    whole = all(one.whole for one in rows)
    if columns.kind == "auto":
        columns = replace(columns, kind="classification" if whole else "regression")
    clients = []
    for one in rows:
        y = of_kind(one.y, columns, one.source, complain)
        if y is None:
            continue
        client = Client(one.x, y, id=one.id, cluster=one.cluster, source=one.source, features=one.features)
        if one.test is None:
            clients.append(with_test_part(client, columns))
        elif one.test.all():
            complain(f"{one.source.name}: all rows are to test on, none is left to train on")
        else:
            clients.append(_split(client, one.test))
    return clients


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
    n = len(np.asarray(client.x))
    if columns.test_share is None or client.x_test is not None or n < 2:
        return client
    key = np.array([key_of(str(client.id))], np.uint64)
    order = shuffled(columns.seed, "test-split", np.array([n]), key)[0]
    test = np.zeros(n, bool)
    test[order[: min(n - 1, max(1, round(columns.test_share * n)))]] = True
    return _split(client, test)


def _split(client: Client, test: NDArray[np.bool_]) -> Client:
    if not test.any():
        return client
    x, y, source = np.asarray(client.x), np.asarray(client.y), client.source or Source(f"client {client.id}")
    rows = np.arange(len(x)) if source.rows is None else source.rows
    own, held_out = (Source(source.name, rows[part], source.unit) for part in (~test, test))
    parts = (x[~test], y[~test], x[test], y[test])
    return Client(*parts, client.id, client.cluster, own, held_out, client.features)


def _chosen(table: Table, columns: Columns, complain: Complain) -> tuple[Sequence[str], Sequence[str]] | None:
    """The label's and the features' columns; None: one is missing."""
    guess = tuple(name for name in LABELS if name in table.columns)[:1]
    label = columns.label or guess
    if not label:
        complain(f"{table.file}: which column is the label? Give label (columns: {table.names()})")
        return None
    others = [name for name in (columns.client, columns.test, columns.cluster) if name is not None]
    missing = [name for name in (*label, *others, *columns.features) if name not in table.columns]
    for name in missing:
        complain(f"{table.file}: has no column {name} (found: {table.names()})")
    features = columns.features or [n for n in table.columns if n not in (*label, *others)]
    if not features and not missing:
        complain(f"{table.file}: no column is left for the features (found: {table.names()})")
    return None if missing or not features else (label, features)


def _members(
    table: Table, columns: Columns, name: str | None, complain: Complain
) -> list[tuple[str, NDArray[np.int64]]]:
    """Clients and their rows, in order of their names."""
    if name is not None or columns.client is None:
        return [(name or table.file.stem, np.arange(len(table.rows)))]
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
