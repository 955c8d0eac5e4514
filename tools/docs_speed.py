"""The tables of docs/performance.md from what was measured: python tools/docs_speed.py writes them.

A table stands between <!-- shapes: FILE --> and <!-- end -->; FILE is of results/bench, made by
benchmarks/users_shapes.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
TABLE = re.compile(r"(<!-- shapes: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
Row = dict[str, Any]


def with_tables(page: str) -> str:
    """The page with every table made anew."""
    return TABLE.sub(lambda found: f"{found[1]}\n{table_of(ROOT / found[2])}\n{found[3]}", page)


def table_of(file: Path) -> str:
    """A line per shape: the loop's time, plain's and the default's beside it; how it was measured."""
    rows: list[Row] = json.loads(file.read_text())
    heads = (
        "shape",
        "loop, s",
        "plain, s",
        "plain / loop",
        "share of rate",
        "default, s",
        "default / plain",
        "first round, s",
    )
    lines = [" | ".join(("", *heads, "")).strip(), "|" + "---|" * len(heads)]
    names = dict.fromkeys(row["shape"] for row in rows)
    lines += [_line([row for row in rows if row["shape"] == name]) for name in names]
    return "\n".join([*lines, "", _measured(rows)]) + "\n"


def _line(rows: list[Row]) -> str:
    by = {row["contestant"]: row for row in rows}
    loop, default = by.get("loop"), by.get("ifca")
    plain = next(row for row in rows if row["contestant"] not in ("loop", "ifca"))
    product, memory = plain["product_share"], plain["memory_share"]
    share = f"{product:.2f} of products" if product >= memory else f"{memory:.2f} of memory"
    cells = (
        f"{plain['shape']}: {plain['about']}",
        _number(loop and loop["seconds_per_round"]),
        _number(plain["seconds_per_round"]),
        _times(plain["ratio_to_loop"]),
        share,
        _number(default and default["seconds_per_round"]),
        _times(default and default["times_plain"]),
        _number((default or plain)["first_round_seconds"]),
    )
    return f"| {' | '.join(cells)} |"


def _measured(rows: list[Row]) -> str:
    """One sentence: where, with what."""
    first = rows[0]
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    commits = ", ".join(dict.fromkeys(str(row["commit"]) for row in rows))
    loads = [row["load"] for row in rows]
    return (
        f"Scale {first['scale']:g} of the clients, {first['device']}, {first['cores']} cores, load "
        f"{min(loads):.1f} to {max(loads):.1f}; medians of {len(first['seconds'])} rounds after the first; "
        f"commit {commits}; {versions}."
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}x" if value < 10 else f"{value:.0f}x"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
