"""Tables as files: .csv and .parquet, their columns as numbers, every bad cell named by its line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data.problems import Complain

KINDS = (".csv", ".parquet")
_WHOLE = re.compile(r"[+-]?\d+")
_TRUE, _FALSE = ("1", "true", "yes", "test"), ("0", "false", "no", "train", "")


@dataclass(frozen=True)
class Table:
    """The columns of a file as they stand there."""

    file: Path
    columns: dict[str, NDArray[Any]]
    """Numbers, or the cells as text."""
    rows: NDArray[np.int64]
    """The place of each row in the file."""
    unit: str
    """line: of a text file, whose header is line 1; row: from 0."""

    def place(self, i: int) -> str:
        """Row i, named."""
        return f"{self.file}, {self.unit} {self.rows[i]}"

    def names(self) -> str:
        """The columns, to be listed."""
        return ", ".join(self.columns)

    def numbers(self, name: str, complain: Complain) -> NDArray[np.float64] | None:
        """A column as numbers; None: a cell is no finite number."""
        column = self.columns[name]
        try:
            values = column.astype(np.float64)
        except (ValueError, TypeError):
            values = np.array([_number(cell) for cell in column.tolist()])
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad) == len(column) > 1 and all(_is_text(cell) for cell in column):
            said = f"column {name} holds text ({column[0]!r}), not numbers"
            complain(f"{self.place(0)}: {said}; name the features without it, or number its classes from 0")
            return None
        for i in bad.tolist():
            cell = column[i]
            if column.dtype.kind == "f" or (isinstance(cell, str) and _is_number(cell)):
                what = "holds a NaN or infinite value"
            else:
                what = "is empty" if cell in ("", None) else f"holds {cell!r}, which is not a number"
            complain(f"{self.place(i)}: column {name} {what}")
        return None if len(bad) else values

    def whole(self, name: str) -> bool:
        """Whether a column holds whole numbers, written as such."""
        column = self.columns[name]
        if column.dtype.kind in "iub":
            return True
        return column.dtype.kind in "OU" and all(_WHOLE.fullmatch(str(cell).strip()) for cell in column)

    def text(self, name: str) -> list[str]:
        """A column as names."""
        return ["" if cell is None else str(cell).strip() for cell in self.columns[name].tolist()]

    def marks(self, name: str, complain: Complain) -> NDArray[np.bool_] | None:
        """A column of yes and no: 1 and 0, true and false, test and train."""
        words = [word.lower() for word in self.text(name)]
        odd = [i for i, word in enumerate(words) if word not in (*_TRUE, *_FALSE)]
        for i in odd:
            complain(f"{self.place(i)}: column {name} holds {words[i]!r}; 1 or 0 (test or train) is needed")
        return None if odd else np.array([word in _TRUE for word in words])


def read_table(file: Path, complain: Complain) -> Table | None:
    """A .csv or .parquet file; None: not readable."""
    if not file.is_file():
        complain(f"{file}: no such file")
        return None
    return _read_parquet(file, complain) if file.suffix == ".parquet" else _read_csv(file, complain)


def _read_csv(file: Path, complain: Complain) -> Table | None:
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            first = text.readline()
            separator = max(",;\t", key=first.count)
            names = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
            lines = list(_rows(csv.reader(text, delimiter=separator), len(names), file, complain))
    except (OSError, UnicodeDecodeError, csv.Error) as reason:
        complain(f"{file}: not a readable .csv file ({reason})")
        return None
    if not names or "" in names or len(set(names)) < len(names):
        what = "no header" if not names else "a column without a name" if "" in names else "a column twice"
        complain(f"{file}, line 1: the header has {what}" if names else f"{file}: is empty, it has no header")
        return None
    cells = np.array([row for _, row in lines], dtype=object).reshape(len(lines), len(names))
    rows = np.array([line for line, _ in lines], np.int64)
    return Table(file, {name: cells[:, i] for i, name in enumerate(names)}, rows, "line")


def _rows(reader: Any, width: int, file: Path, complain: Complain) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells of the rows that have all their cells."""
    for row in reader:
        line = reader.line_num + 1  # the header was read before
        if len(row) == width:
            yield line, row
        elif row:
            complain(f"{file}, line {line}: has {len(row)} cells, but the header has {width}")


def _read_parquet(file: Path, complain: Complain) -> Table | None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InvalidInput(f"{file}: .parquet files need pyarrow: pip install 'ifca[parquet]'") from None
    try:
        content = pq.read_table(file)
    except (pa.ArrowException, OSError) as reason:
        complain(f"{file}: not a readable .parquet file ({' '.join(str(reason).split())}); it may be cut off")
        return None
    columns = {}
    for name in content.column_names:
        column = content.column(name)
        plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if plain and not column.null_count:
            columns[name] = column.to_numpy()
        else:  # booleans, text and columns with gaps, cell by cell
            columns[name] = np.array(column.to_pylist(), dtype=bool if _is_bool(pa, column) else object)
    return Table(file, columns, np.arange(content.num_rows), "row")


def _is_bool(pa: Any, column: Any) -> bool:
    return pa.types.is_boolean(column.type) and not column.null_count


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (ValueError, TypeError):
        return float("nan")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_text(cell: Any) -> bool:
    return isinstance(cell, str) and bool(cell.strip()) and not _is_number(cell)
