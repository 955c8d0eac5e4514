"""What 'ifca tune' tried, as a table for the terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table


def tune_table(found: dict[str, Any]) -> Table:
    """The settings, the best first; those of fewer rounds were left behind after them."""
    rows: list[dict[str, Any]] = found["table"]
    table = Table(
        title=f"Settings by the held-out loss of {found['clients']} clients",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    names = list(rows[0]["settings"])
    for head in (*names, "rounds", "held-out\nloss", "more than\nthe best", "standard\nerrors"):
        table.add_column(head, justify="right")
    for place, row in enumerate(rows):
        mark = "* " if place == 0 else ""
        first, *others = (str(row["settings"][name]) for name in names)
        loss = "diverged" if row["held_out_loss"] is None else f"{row['held_out_loss']:.4g}"
        behind = "–" if place == 0 or row["behind"] is None else f"{row['behind']:+.3g}"
        errors = "–" if row["standard_errors"] is None else f"{row['standard_errors']:.1f}"
        table.add_row(mark + first, *others, str(row["rounds"]), loss, behind, errors)
    return table
