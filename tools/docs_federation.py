"""The table of docs/federation.md from what was tried: python tools/docs_federation.py writes it.

A table stands between <!-- table: FILE --> and <!-- end -->; FILE has a line of JSON for each time that a
part of it was tried, of which the last counts (benchmarks/federation_session.py).
"""

from __future__ import annotations

import json
import re
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
    rows = sorted((one for line in last for one in line["rows"]), key=lambda one: str(one["point"]))
    table = ["| point | tried | came out | |", "|---|---|---|---|"]
    table += [f"| {' | '.join(_tried(one))} |" for one in rows]
    return "\n".join([*table, "", _measured(last)]) + "\n"


def _tried(row: Content) -> tuple[str, ...]:
    outcome = row["outcome"].replace("|", "/")
    return row["point"], row["tried"], outcome, "as promised" if row["kept"] else "**not as promised**"


def _measured(lines: list[Content]) -> str:
    """One sentence: where, with what."""
    versions = ", ".join(f"{name} {version}" for name, version in lines[0]["versions"].items())
    commits = ", ".join(dict.fromkeys(str(line["commit"]) for line in lines))
    loads = [line["load"] for line in lines]
    load = f"{min(loads)} to {max(loads)}" if len(loads) > 1 else f"{loads[0]}"
    return f"{lines[0]['cores']} cores, load {load}; commit {commits}; {versions}."


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
