"""Tables as files: .csv (.csv.gz) and .parquet, in the encodings and with the separators that people use."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data.cells import Cells, cells_of
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
    """The name of a file without its kind: a client's id."""
    return file.name.removesuffix(kind_of(file))


def check_no_spreadsheet(file: Path, complain: Complain) -> None:
    """Say what to do with a workbook; the table in it may be one of several."""
    if file.suffix.lower() in EXCEL and file.name[0] not in ".~":  # those are of an open program
        complain(f"{file}: is a spreadsheet; save its table as .csv ('Save as' in Excel), and take it away")


def read_table(file: Path, complain: Complain) -> Table | None:
    """A .csv or .parquet file; None: not readable."""
    if not file.is_file():
        complain(f"{file}: no such file")
        return None
    return _read_parquet(file, complain) if file.suffix == ".parquet" else _read_csv(file, complain)


def _read_csv(file: Path, complain: Complain) -> Table | None:
    try:
        raw = file.read_bytes()
        text = io.StringIO(_decoded(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw), newline="")
        first = text.readline()
        separator = max(",;\t", key=first.count)
        names = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
        lines = list(_rows(csv.reader(text, delimiter=separator), len(names), file, complain))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as reason:
        complain(f"{file}: not a readable .csv file ({reason})")
        return None
    if names.count("") == 1 and len(names) > 1:
        names[names.index("")] = UNNAMED
    if not names or "" in names or len(set(names)) < len(names):
        what = "no header" if not names else "a column without a name" if "" in names else "a column twice"
        complain(f"{file}, line 1: the header has {what}" if names else f"{file}: is empty, it has no header")
        return None
    cells = np.array([row for _, row in lines], dtype=object).reshape(len(lines), len(names))
    rows = np.array([line for line, _ in lines], np.int64)
    columns = {name: cells[:, i] for i, name in enumerate(names)}
    return Table(file, columns, rows, "line", decimal_comma=separator == ";")


def _decoded(raw: bytes) -> str:
    """Text in the encodings of today and of older spreadsheets."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")  # latin-1, with the euro sign of Windows


def _rows(reader: Any, width: int, file: Path, complain: Complain) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells of the rows that have all their cells."""
    odd: list[tuple[int, int]] = []
    for row in reader:
        line = reader.line_num + 1  # the header was read before
        if len(row) == width:
            yield line, row
        elif row:
            odd.append((line, len(row)))
    if odd:
        more = f" (so it is in {len(odd) - 1} more lines)" if len(odd) > 1 else ""
        complain(f"{file}, line {odd[0][0]}: has {odd[0][1]} cells, but the header has {width}{more}")


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
