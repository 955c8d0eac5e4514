"""Assignments of new clients as a table."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table


def assignments_table(found: list[dict[str, Any]]) -> Table:
    """A row per client; a mark where something is to be said about it."""
    table = Table(
        title="Clients and their clusters", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False
    )
    table.add_column("client")
    for head in ("samples", "cluster", "loss", "second", "margin", "standard\nerrors", "usual\nup to"):
        table.add_column(head, justify="right")
    table.add_column("")
    for one in found:
        errors = one["margin_in_errors"]
        table.add_row(
            one["client"],
            str(one["samples"]),
            str(one["cluster"]),
            f"{one['losses'][one['cluster']]:.4f}",
            "–" if one["second"] is None else str(one["second"]),
            "–" if one["margin"] is None else f"{one['margin']:.4f}",
            "–" if errors is None else f"{errors:.1f}",
            "–" if one["usual_loss"] is None else f"{one['usual_loss']:.4f}",
            "; ".join("no fit" if text.startswith("no model") else "unsure" for text in one["warnings"]),
        )
    return table
