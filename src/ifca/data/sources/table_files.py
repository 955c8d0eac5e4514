"""Tables as files: .csv (.csv.gz) and .parquet, in the encodings and with the separators that people use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import Unreadable
from ifca.data.cells import Cells, cells_of
from ifca.data.formats.csv_file import read_csv
from ifca.data.formats.parquet_file import read_parquet
from ifca.data.formats.whole_file import check_regular
from ifca.data.problems import Complain

KINDS = (".csv", ".csv.gz", ".parquet")
EXCEL = (".xlsx", ".xls", ".xlsm", ".ods")
UNNAMED = "unnamed"  # what a column without a name is called; pandas writes its row numbers so
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
    decimal_comma: bool = False
    """Whether a comma in a number is its decimal mark, as where semicolons separate the cells."""

    def place(self, i: int) -> str:
        """Row i, named."""
        return f"{self.file}, {self.unit} {self.rows[i]}"

    def names(self) -> str:
        """The columns, to be listed."""
        return ", ".join(self.columns)

    def cells(self, name: str) -> Cells:
        """A column, cell by cell."""
        return cells_of(self.columns[name], self.decimal_comma)

    def numbers(self, name: str, complain: Complain) -> NDArray[np.float64] | None:
        """A column as numbers; None: a cell is no finite number."""
        cells = self.cells(name)
        bad = np.flatnonzero(~np.isfinite(cells.numbers)).tolist()
        if bad:
            cell, more = cells.texts[bad[0]], f" (so are {len(bad) - 1} more cells)" if len(bad) > 1 else ""
            what = f"holds {cell!r}, which is not a number" if cell else f"is empty{more}"
            complain(f"{self.place(bad[0])}: column {name} {what}")
        return None if bad else cells.numbers

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


def kind_of(file: Path) -> str:
    """How the name of a file ends, .gz with what is before it."""
    return "".join(file.suffixes[-2:]) if file.suffix == ".gz" else file.suffix


def name_of(file: Path) -> str:
    """The name of a file without its kind: a client's id, the same in every locale.

    Bytes that are no text are spelled out.
    """
    name = file.name.removesuffix(kind_of(file))
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def check_no_spreadsheet(file: Path, complain: Complain) -> None:
    """Say what to do with a workbook; the table in it may be one of several."""
    if file.suffix.lower() in EXCEL and file.name[0] not in ".~":  # those are of an open program
        complain(f"{file}: is a spreadsheet; save its table as .csv ('Save as' in Excel), and take it away")


def read_table(file: Path, complain: Complain) -> Table | None:
    """A .csv or .parquet file; None: not readable."""
    try:
        check_regular(file)
        if file.suffix != ".parquet":
            return _read_csv(file, complain)
        columns, rows = read_parquet(file)
    except Unreadable as reason:
        complain(str(reason))
        return None
    return Table(file, columns, np.arange(rows), "row")


def _read_csv(file: Path, complain: Complain) -> Table | None:
    found = read_csv(file)
    if found.odd:
        (line, count), more = found.odd[0], len(found.odd) - 1
        also = f" (so it is in {more} more lines)" if more else ""
        complain(f"{file}, line {line}: has {count} cells, but the header has {len(found.names)}{also}")
    names = found.names
    if names.count("") == 1 and len(names) > 1:
        names[names.index("")] = UNNAMED
    if not names or "" in names or len(set(names)) < len(names):
        what = "no header" if not names else "a column without a name" if "" in names else "a column twice"
        complain(f"{file}, line 1: the header has {what}" if names else f"{file}: is empty, it has no header")
        return None
    cells = np.array(found.rows, dtype=object).reshape(len(found.rows), len(names))
    columns = {name: cells[:, i] for i, name in enumerate(names)}
    return Table(file, columns, np.array(found.lines, np.int64), "line", found.separator == ";")
