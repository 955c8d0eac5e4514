"""The tables of docs/federation.md from what was measured: python tools/docs_federation.py writes them.

A table stands between <!-- table: FILE --> and <!-- end -->; FILE has a line of JSON for each time it, or a
part of it, was measured, of which the last counts (benchmarks/federation_session.py, clients.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "federation.md"
TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
Content = dict[str, Any]


def with_tables(page: str) -> str:
    """The page with every table made anew."""
    return TABLE.sub(lambda found: f"{found[1]}\n{table_of(ROOT / found[2])}\n{found[3]}", page)


def table_of(file: Path) -> str:
    """The table of the last lines of a file, and how they were measured."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    last = list({line.get("part"): line for line in lines}.values())  # of each part
    heads, row = KINDS[file.stem]
    rows = sorted((one for line in last for one in line["rows"]), key=lambda one: one.get("point", ""))
    table = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    table += [f"| {' | '.join(row(one))} |" for one in rows]
    return "\n".join([*table, "", _measured(last)]) + "\n"


def _tried(row: Content) -> tuple[str, ...]:
    outcome = row["outcome"].replace("|", "/")
    return row["point"], row["tried"], outcome, "as promised" if row["kept"] else "**not as promised**"


def _clients(row: Content) -> tuple[str, ...]:
    rates = (row["loop"], row["vectorised"], row["flower"])
    times = f"{row['loop'] / row['flower']:.1f}"
    return f"{row['clients']:,}", *(f"{rate:.3g}" for rate in rates), times


KINDS: dict[str, tuple[tuple[str, ...], Callable[[Content], tuple[str, ...]]]] = {
    "session": (("point", "tried", "came out", ""), _tried),
    "clients": (("clients", "loop", "vectorised", "simulated", "simulated, times the loop's time"), _clients),
}


def _measured(lines: list[Content]) -> str:
    """One sentence: where, with what."""
    versions = ", ".join(f"{name} {version}" for name, version in lines[0]["versions"].items())
    commits = ", ".join(dict.fromkeys(str(line["commit"]) for line in lines))
    loads = [line["load"] for line in lines]
    load = f"{min(loads)} to {max(loads)}" if len(loads) > 1 else f"{loads[0]}"
    return f"{lines[0]['cores']} cores, load {load}; commit {commits}; {versions}."


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
