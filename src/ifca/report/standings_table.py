"""Methods that were compared, as a small table: the terminal and the page show the same."""

from __future__ import annotations

from typing import Any

from ifca.runs.verdict import gap, shown

STANDING = {"best": "best", "tie": "tie", "worse": "clearly worse"}


def standings_table(found: dict[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """Title, heads and rows of a comparison, the best method first."""
    what = " ".join(found["metric"].split("_")[:2]).replace("train ", "training ")
    seeds = len(found["seeds"])
    title = f"Methods compared over {seeds} seeds" if seeds > 1 else "Methods compared"
    heads = ["method", what, "95 % interval", "behind the first", "verdict"]
    best = found["table"][0]["value"]
    rows = []
    for row in found["table"]:
        behind = "–" if row["behind"] is None else gap(found, row["behind"], best)
        so = STANDING[row["standing"]] if found["best"] else "–"
        rows.append([row["title"], shown(found, row["value"]), _range(found, row), behind, so])
    return title, heads, rows


def _range(found: dict[str, Any], row: dict[str, Any]) -> str:
    if row["low"] is None or row["high"] is None:
        return "–"
    low, high = shown(found, row["low"]), shown(found, row["high"])
    return f"{low.removesuffix(' %')} to {high}"
