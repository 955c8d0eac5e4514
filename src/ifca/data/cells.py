"""A column of a table, cell by cell: which cells are missing, which are numbers, what they say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "-", "?"})
"""Cells that say that a value is not known, in small letters."""
_WHOLE = re.compile(r"[+-]?\d+")
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")  # 1,234,567.8
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")  # 1234,5 or 1.234,5
_GROUPED_BY_DOTS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+")  # 1.234.567
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([T ].*)?|\d{1,2}:\d{2}(:.*)?"
)


@dataclass(frozen=True)
class Cells:
    """n cells of one column."""

    raw: NDArray[Any]
    """[n] numbers, or the cells as they stand in the file."""
    numbers: NDArray[np.float64]
    """[n] NaN where a cell is missing or is no number."""
    missing: NDArray[np.bool_]
    """[n]"""

    def __len__(self) -> int:
        """The number of cells, n."""
        return len(self.raw)

    @cached_property
    def words(self) -> NDArray[np.bool_]:
        """[n] cells that are there and are no finite numbers."""
        return ~self.missing & ~np.isfinite(self.numbers)

    @cached_property
    def texts(self) -> list[str]:
        """The cells as text; nothing where they are missing."""
        both = zip(self.raw.tolist(), self.missing.tolist(), strict=True)
        return ["" if missing else text_of(cell) for cell, missing in both]

    @cached_property
    def dates(self) -> int:
        """How many cells are dates or times."""
        return sum(bool(_DATE.fullmatch(self.texts[i])) for i in np.flatnonzero(self.words).tolist())

    @cached_property
    def whole(self) -> int:
        """How many cells are whole numbers, written as such where no number has a fraction."""
        if self.raw.dtype.kind in "iub":
            return len(self)
        if self.raw.dtype.kind == "f":
            return 0
        there = self.numbers[np.isfinite(self.numbers)]
        if (there != np.rint(there)).any():  # not all are; how many is of no interest
            return int((there == np.rint(there)).sum())
        return sum(bool(_WHOLE.fullmatch(text)) for text in self.texts)

    def take(self, rows: NDArray[Any]) -> Cells:
        """Some of the cells."""
        return Cells(self.raw[rows], self.numbers[rows], self.missing[rows])


def cells_of(raw: NDArray[Any], decimal_comma: bool = False) -> Cells:
    """The cells raw [n], which are numbers or text. decimal_comma: a comma in a number is its decimal mark.

    So it is too where the digits after one of the column's commas say it (141,5); else commas group
    thousands (1,234).
    """
    if raw.dtype.kind in "fiub":
        numbers = raw.astype(np.float64)
        return Cells(raw, numbers, np.isnan(numbers))
    try:
        numbers = raw.astype(np.float64)
    except (ValueError, TypeError):
        pass
    else:
        return Cells(raw, numbers, np.isnan(numbers))
    texts = [text_of(cell) for cell in raw.tolist()]
    missing = np.array([text.casefold() in MISSING for text in texts], bool)
    commas = [text for text in texts if "," in text and _DECIMAL_COMMA.fullmatch(text)]
    comma = bool(commas) and (decimal_comma or not all(_GROUPED.fullmatch(text) for text in commas))
    both = zip(texts, missing.tolist(), strict=True)
    numbers = np.array([np.nan if gone else _number(text, comma) for text, gone in both])
    return Cells(raw, numbers, missing)


def text_of(cell: Any) -> str:
    """A cell as text; a whole number without a fraction, true as 1."""
    if cell is None:
        return ""
    if isinstance(cell, bool) or (isinstance(cell, float) and cell.is_integer()):
        return str(int(cell))
    return str(cell).strip()


def _number(text: str, comma: bool) -> float:
    """A number as people write it, else NaN. comma: commas are decimal marks and dots group digits."""
    if comma and _DECIMAL_COMMA.fullmatch(text):
        text = text.replace(".", "").replace(",", ".")
    elif (comma and _GROUPED_BY_DOTS.fullmatch(text)) or (not comma and _GROUPED.fullmatch(text)):
        text = text.replace(",", "").replace(".", "") if comma else text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return float("nan")
