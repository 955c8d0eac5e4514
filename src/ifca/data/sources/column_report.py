"""What is done to each column of a user's tables, as plain JSON values for a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ifca.data.preparation import Preparation
from ifca.data.sources.columns import Rows

EXAMPLES = 3  # values of a column that are shown
LOOKED_AT = 200  # rows of a client in which they are looked for


def column_report(rows: Sequence[Rows], preparation: Preparation) -> dict[str, Any]:
    """Columns with what they are taken as and how many cells are missing, the label, and what is lost."""
    names = [column.name for column in preparation.columns]
    holes = {name: sum(int(one.cells[name].missing.sum()) for one in rows) for name in names}
    columns = [
        {
            "name": column.name,
            "taken_as": column.kind,
            "done": column.done(),
            "features": list(column.features),
            "missing": holes[column.name],
            "examples": _examples(rows, column.name),
        }
        for column in preparation.columns
    ]
    label = [{"name": name, "examples": _examples(rows, name)} for name in preparation.label]
    return {
        "columns": columns,
        "label": label,
        "class_names": None if preparation.class_names is None else list(preparation.class_names),
        "set_aside": [column.name for column in preparation.columns if column.kind == "set aside"],
        "unlabelled_rows": sum(one.unlabelled for one in rows),
    }


def _examples(rows: Sequence[Rows], name: str) -> list[str]:
    """The first different values."""
    found: dict[str, None] = {}
    for one in rows:
        cells = one.cells[name]
        for i in range(min(LOOKED_AT, len(cells))):
            if not cells.missing[i]:
                found[str(cells.raw[i]).strip()] = None
            if len(found) == EXAMPLES:
                return list(found)
    return list(found)
