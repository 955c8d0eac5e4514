"""The columns of .parquet files: numbers as they are, other plain values cell by cell, nothing nested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput, Unreadable
from ifca.data.formats.whole_file import bomb, largest

CELL = 8  # bytes of one in memory


def read_parquet(file: Path) -> tuple[dict[str, NDArray[Any]], int]:
    """The columns by name, and the number of rows."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InvalidInput(f"{file}: .parquet files need pyarrow: pip install 'ifca[parquet]'") from None
    try:
        with pq.ParquetFile(file) as content:  # read_table would take folders like site=3 for columns
            about = content.metadata
            if about.num_rows * max(1, about.num_columns) * CELL > largest(file.stat().st_size):
                raise bomb(file, about.num_rows * about.num_columns * CELL)
            table = content.read()
            return {name: _values(pa, file, name, table) for name in _names(file, table)}, table.num_rows
    except Unreadable:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError) as reason:
        why = " ".join(str(reason).split())[:200]
        raise Unreadable(f"{file}: not a readable .parquet file ({why}); it may be cut off") from None


def _names(file: Path, table: Any) -> list[str]:
    names = [str(name) for name in table.column_names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Unreadable(f"{file}: has the column {twice} twice")
    return names


def _values(pa: Any, file: Path, name: str, table: Any) -> NDArray[Any]:
    """A column [rows]: numbers where it has no gaps, else cell by cell."""
    column, types = table.column(name), pa.types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        raise Unreadable(f"{file}: column {name} holds values of type {kind}; a number or a word is needed")
    if types.is_fixed_size_binary(kind):
        raise Unreadable(f"{file}: column {name} holds values of type {kind}; a number or a word is needed")
    if (types.is_integer(kind) or types.is_floating(kind)) and not column.null_count:
        plain: NDArray[Any] = column.to_numpy()
        return plain
    whole = types.is_boolean(kind) and not column.null_count
    return np.array(column.to_pylist(), dtype=bool if whole else object)
