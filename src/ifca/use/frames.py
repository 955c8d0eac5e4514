"""DataFrames as people have them: columns of words, dates and missing cells, labels that are words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data import Client
from ifca.data.cells import cells_of, text_of
from ifca.data.fit_preparation import Override
from ifca.data.preparation import Preparation
from ifca.data.sources.columns import Columns, Kind, rows_of
from ifca.data.sources.prepared_clients import clients_of
from ifca.data.sources.table_files import Table


def is_frame(X: Any) -> bool:
    """Whether it is a pandas DataFrame; without importing pandas."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def is_messy(X: Any, y: Any) -> bool:
    """Whether X has columns of words, dates or missing cells, or y has words."""
    words = np.asarray(y).dtype.kind in "OUST"
    if not is_frame(X):
        return words
    return words or any(kind.kind not in "fiu" for kind in X.dtypes) or bool(X.isna().to_numpy().any())


def prepared_frame(X: Any, y: Any, groups: Any) -> list[Client]:
    """The clients of a table, each column prepared by what it holds, as 'ifca run' does with files."""
    columns = _columns(X)
    targets, client = _targets(y, columns), _free("client", columns)
    columns |= {name: _label(one) for name, one in targets.items()}
    columns[client] = np.array([str(one) for one in groups], dtype=object)
    table = Table(Path("X"), columns, np.arange(len(groups)), "row")
    kind: Kind = "regression" if np.asarray(y).dtype.kind == "f" else "auto"
    reading = Columns(label=tuple(targets), client=client, kind=kind)
    return clients_of(rows_of(table, reading, None), reading)


def features_of_frame(
    verb: str, X: Any, preparation: Preparation, taken_as: Mapping[str, Override]
) -> NDArray[np.float64]:
    """The features of rows, prepared as in training; columns that were not used there are not looked at.

    taken_as: as of Columns; words in a column of numbers are refused where it does not call it so.
    """
    columns, table = _columns(X), {}
    for column in preparation.used:
        if column.name not in columns:
            raise InvalidInput(f"{verb}: X has no column {column.name}, which was there in training")
        cells = table[column.name] = cells_of(columns[column.name])
        if column.kind == "number" and cells.words.any() and taken_as.get(column.name) != "number":
            word = cells.texts[int(np.flatnonzero(cells.words)[0])]
            raise InvalidInput(f"{verb}: column {column.name} of X holds {word!r}, which is not a number")
    return preparation.prepared(table)


def _columns(X: Any) -> dict[str, NDArray[Any]]:
    if is_frame(X):
        twice = [str(name) for name, again in zip(X.columns, X.columns.duplicated(), strict=True) if again]
        if twice:
            raise InvalidInput(f"X has the column {twice[0]} twice")
        return {str(name): _cells(X[name]) for name in X.columns}
    rows = np.asarray(X)
    if rows.ndim != 2:
        raise InvalidInput(f"fit: labels that are words need X with a row per sample, got shape {rows.shape}")
    return {f"x{i}": rows[:, i] for i in range(rows.shape[1])}


def _cells(values: Any) -> NDArray[Any]:
    """A column as numbers, or as text with None where a cell is missing."""
    plain = np.asarray(values)
    if plain.dtype.kind in "fiu":
        return plain
    if plain.dtype.kind in "mM":  # as lists they may be whole numbers of nanoseconds
        plain = plain.astype(str).astype(object)
    missing = np.asarray(values.isna()) if hasattr(values, "isna") else np.array([v is None for v in plain])
    return np.array(
        [None if gone else _text(v) for v, gone in zip(plain.tolist(), missing, strict=True)], dtype=object
    )


def _targets(y: Any, taken: Collection[str]) -> dict[str, Any]:
    """The label, or the several targets of a regression, by names that no column has."""
    values = np.asarray(y)
    if values.ndim == 1:
        return {_free(str(getattr(y, "name", None) or "y"), taken): y}
    return {
        _free(f"y{i}" if values.shape[1] > 1 else "y", taken): values[:, i] for i in range(values.shape[1])
    }


def _label(y: Any) -> NDArray[Any]:
    """Labels as cells; of bools 0 and 1, which are equal to what was given."""
    cells = _cells(y)
    if any(isinstance(cell, bool) for cell in np.asarray(y).tolist()):
        cells = np.array([{"False": "0", "True": "1"}.get(cell, cell) for cell in cells], dtype=object)
    return cells


def _text(cell: Any) -> str:
    """As a file has it: a bool is a word, whether or not other cells of its column are missing."""
    return str(cell) if isinstance(cell, bool) else text_of(cell)


def _free(name: str, taken: Collection[str]) -> str:
    """A name that no column has."""
    return _free(f"{name}_", taken) if name in taken else name
