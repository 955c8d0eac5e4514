"""A folder with a file per client (.npz, .csv or .parquet), or one table of all clients."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import Unreadable
from ifca.data.assemble import arrays
from ifca.data.clients import Client
from ifca.data.federation import Federation
from ifca.data.formats.npz_file import read_npz
from ifca.data.preparation import Preparation
from ifca.data.problems import Complain, Source, refuse
from ifca.data.sources.columns import LABELS, Columns, Rows, label_in, of_kind, rows_of, with_test_part
from ifca.data.sources.prepared_clients import clients_of
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import Table, check_no_spreadsheet, kind_of, name_of, read_table

KINDS = (".npz", *TABLES)
Standardise = bool | Literal["auto"]
AS_THEY_ARE = Columns()


def read_folder(
    folder: Path | str,
    classes: int | None = None,
    columns: Columns = AS_THEY_ARE,
    *,
    standardise: Standardise = "auto",
) -> Federation:
    """All client files of a folder, in order of their names; a file's name is its client's id.

    columns: which columns of .csv and .parquet files are what. standardise: every feature to mean 0 and
    variance 1; auto: where a table has more than columns of numbers.
    """
    columns = replace(columns, classes=classes)
    return federation_of(folder_clients(Path(folder), columns), classes, standardise)


def read_clients_table(
    file: Path | str, columns: Columns, classes: int | None = None, *, standardise: Standardise = "auto"
) -> Federation:
    """One .csv or .parquet file with the rows of all clients; columns.client says whose a row is."""
    columns = replace(columns, classes=classes)
    return federation_of(table_clients(Path(file), columns), classes, standardise)


def federation_of(clients: list[Client], classes: int | None, standardise: Standardise) -> Federation:
    """The clients together; auto: standardised where a table has words, or missing cells."""
    federation = Federation.from_clients(clients, classes)
    return federation.standardised() if is_standardised(standardise, federation.preparation) else federation


def is_standardised(standardise: Standardise, preparation: Preparation | None) -> bool:
    """What standardise comes to; preparation: None, the data are arrays."""
    auto = preparation is not None and not preparation.plain
    return auto if standardise == "auto" else standardise


def folder_clients(folder: Path, columns: Columns, complain: Complain = refuse) -> list[Client]:
    """The clients of a folder; where complain returns, files that are wrong are left out."""
    files = client_files(folder, complain)
    if not files or files[0].suffix == ".npz":
        clients = [client for file in files if (client := _read_arrays(file, columns, complain)) is not None]
        return [with_test_part(client, columns) for client in clients]
    return clients_of(folder_rows(folder, columns, complain), columns, complain)


def folder_rows(folder: Path, columns: Columns, complain: Complain = refuse) -> list[Rows]:
    """The rows of a folder's tables, a table per client; none where it holds arrays."""
    files = [file for file in client_files(folder, complain) if file.suffix != ".npz"]
    tables = [table for file in files if (table := read_table(file, complain)) is not None]
    if not columns.features:
        tables = _same_columns(tables, columns, complain)
    if tables and not label_in(tables[0], columns):
        complain(_which_label(folder, tables[0]))
        return []
    if any(name not in table.columns for table in tables[:1] for name in columns.label):
        tables = tables[:1]  # all have the same columns: it is said once
    return [one for table in tables for one in rows_of(table, columns, name_of(table.file), complain)]


def _which_label(where: Path, table: Table) -> str:
    names = f"{', '.join(LABELS[:-1])} or {LABELS[-1]}"
    return (
        f"{where}: which column is the label? Give label (columns: {table.names()}); none is called {names}"
    )


def _same_columns(tables: list[Table], columns: Columns, complain: Complain) -> list[Table]:
    """Tables with the columns of most of them, in one order: a feature is known by its name.

    A column that is left out may be missing in some; its cells are empty there.
    """
    if not tables:
        return []
    out = {name for name, taken in columns.taken_as.items() if taken == "leave out"}
    usual = Counter(frozenset(table.columns.keys() - out) for table in tables).most_common(1)[0][0]
    first = next(table for table in tables if table.columns.keys() - out == usual)
    roles = {*label_in(first, columns), columns.client, columns.test, columns.cluster}
    for table in tables:
        for name in sorted(usual - table.columns.keys()):
            advice = "" if name in roles else f'; columns.{name} = "leave out" does without it'
            complain(f"{table.file}: has no column {name}, which {first.file.name} has{advice}")
        for name in sorted(table.columns.keys() - usual - out):
            complain(
                f"{table.file}: has a column {name}, which {first.file.name} has not; "
                f'columns.{name} = "leave out" does without it'
            )
    found = {name for table in tables for name in table.columns}
    names = [*first.columns, *sorted((found & out) - first.columns.keys())]
    return [
        replace(table, columns={name: table.columns.get(name, _holes(table)) for name in names})
        for table in tables
        if table.columns.keys() - out == usual
    ]


def _holes(table: Table) -> NDArray[np.object_]:
    """A column of empty cells."""
    return np.full(len(table.rows), "", dtype=object)


def table_clients(file: Path, columns: Columns, complain: Complain = refuse) -> list[Client]:
    """The clients of one table."""
    return clients_of(table_rows(file, columns, complain), columns, complain)


def table_rows(file: Path, columns: Columns, complain: Complain = refuse) -> list[Rows]:
    """The rows of one table, client by client."""
    if kind_of(file) not in TABLES:
        complain(f"{file}: a table is a .csv (.csv.gz) or a .parquet file")
        return []
    table = read_table(file, complain)
    if table is not None and columns.client is None:
        complain(f"{file}: which column says whose a row is? Give client (columns: {table.names()})")
    if table is None or columns.client is None:
        return []
    return rows_of(table, columns, None, complain)


def has_tables(path: Path) -> bool:
    """Whether a path is a table, or a folder of them."""
    files = client_files(path, lambda _sentence: None) if path.is_dir() else [path]
    return bool(files) and kind_of(files[0]) in TABLES


def client_files(folder: Path, complain: Complain = refuse) -> list[Path]:
    """The files of a folder that hold clients, all of one kind, in order of their names."""
    if not folder.is_dir():
        complain(f"{folder}: no such folder of client files")
        return []
    found = sorted(file for file in folder.iterdir() if file.name[0] != ".")
    files = [file for file in found if kind_of(file) in KINDS]
    for file in found:
        check_no_spreadsheet(file, complain)
        if kind_of(file) not in KINDS and kind_of(file).lower() in KINDS:
            complain(f"{file}: its name must end in {kind_of(file).lower()}, in small letters")
    if not files:
        complain(f"{folder}: the folder has no .npz, .csv or .parquet file (one per client is expected)")
        return []
    kinds = Counter(map(kind_of, files)).most_common()
    if len(kinds) > 1:
        named = " and ".join(
            f"{kind} ({next(f.name for f in files if kind_of(f) == kind)})" for kind, _ in kinds
        )
        complain(f"{folder}: holds files of several kinds, {named}; all clients must be of one")
    return [file for file in files if kind_of(file) == kinds[0][0]]


def read_client(file: Path, columns: Columns = AS_THEY_ARE) -> Client:
    """One client's file; a file that is cut off, altered or of another kind is named in the complaint."""
    if kind_of(file) not in TABLES:
        client = _read_arrays(file, columns, refuse)
        assert client is not None
        return client
    table = read_table(file, refuse)
    assert table is not None
    return clients_of(rows_of(table, columns, name_of(file)), columns)[0]


def write_client(file: Path, client: Client) -> None:
    """The inverse of read_client, as .npz."""
    content = {name: getattr(client, name) for name in ("x", "y", "x_test", "y_test", "cluster")}
    given = {name: np.asarray(value) for name, value in content.items() if value is not None}
    np.savez(file, **given)  # type: ignore[arg-type]


def _read_arrays(file: Path, columns: Columns, complain: Complain) -> Client | None:
    """One .npz file: x, y, optionally x_test, y_test and cluster."""
    try:
        content = read_npz(file)
    except Unreadable as reason:
        complain(str(reason))
        return None
    known = ("x", "y", "x_test", "y_test", "cluster")
    missing = [name for name in ("x", "y") if name not in content]
    unknown = sorted(set(content) - set(known))
    if missing:
        found = ", ".join(sorted(content)) or "nothing"
        complain(f"{file}: has no array {missing[0]} (found: {found})")
    if unknown:
        complain(f"{file}: unknown array {unknown[0]} (known: {', '.join(known)})")
    if missing:
        return None
    source, test_source = Source(f"{file}"), Source(f"{file}, test part")
    train, test = arrays(source, content["x"], content["y"], complain), None
    if "x_test" in content or "y_test" in content:
        test = arrays(test_source, content.get("x_test"), content.get("y_test"), complain)
        if test is None:
            return None
    cluster = content.get("cluster")
    if cluster is not None and (cluster.size != 1 or cluster.dtype.kind not in "iu"):
        complain(f"{file}: cluster must be one whole number")
        return None
    if train is None:
        return None
    y = of_kind(train.y, columns, source, complain)
    x_test = None if test is None else test.x
    y_test = None if test is None else of_kind(test.y, columns, test_source, complain)
    if y is None or (test is not None and y_test is None):
        return None
    true = None if cluster is None else int(cluster.item())
    return Client(train.x, y, x_test, y_test, name_of(file), true, source, test_source)
