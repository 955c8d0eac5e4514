"""The lines of .csv files (.csv.gz), in the encodings and with the separators that people use."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import NamedTuple

from ifca.core.errors import Unreadable
from ifca.data.formats.whole_file import read_whole, unpacked

SEPARATORS = ",;\t"
CONTROL = re.compile("[\0\x1b\x9b]")  # of other encodings, and what terminals would obey


class CsvLines(NamedTuple):
    """The cells of a file."""

    names: list[str]
    """The header; empty: there is none."""
    rows: list[list[str]]
    """The rows that have all their cells."""
    lines: list[int]
    """Their places in the file, whose header is line 1."""
    odd: list[tuple[int, int]]
    """Line and number of cells of the rows that have more or fewer."""
    separator: str


def read_csv(file: Path, separator: str | None = None, coding: str | None = None) -> CsvLines:
    """All lines of a file; empty ones do not count.

    separator: None, the one that its header has most of. coding: None, what its bytes look like.
    """
    raw = unpacked(file, read_whole(file))
    try:
        whole = _decoded(raw) if coding is None else raw.decode(coding)
        if found := CONTROL.search(whole):
            line = whole.count("\n", 0, found.start()) + 1
            raise Unreadable(f"{file}, line {line}: is no text, it has the control character {found[0]!r}")
        text = io.StringIO(whole, newline="")
        first = text.readline()
        mark = separator or max(SEPARATORS, key=first.count)
        names = [name.strip() for name in next(csv.reader([first], delimiter=mark), [])]
        reader = csv.reader(text, delimiter=mark)
        rows: list[list[str]] = []
        lines: list[int] = []
        odd: list[tuple[int, int]] = []
        for row in reader:
            line = reader.line_num + 1  # the header was read before
            if len(row) == len(names):
                rows.append(row)
                lines.append(line)
            elif row:
                odd.append((line, len(row)))
    except (csv.Error, UnicodeDecodeError) as reason:
        raise Unreadable(f"{file}: not a readable .csv file ({reason})") from None
    return CsvLines(names, rows, lines, odd, mark)


def _decoded(raw: bytes) -> str:
    """Text in the encodings of today and of older spreadsheets."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", errors="replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")  # latin-1, with the euro sign of Windows
