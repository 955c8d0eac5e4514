"""The tables of docs/federation.md from what was measured: python tools/docs_federation.py writes them.

A table stands between <!-- table: FILE --> and <!-- end -->; FILE has a line of JSON for each time it was
measured, of which the last counts (benchmarks/federation_session.py, benchmarks/clients.py).
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
    """The table of a file's last line, and how it was measured."""
    content: Content = json.loads(file.read_text().splitlines()[-1])
    heads, row = KINDS[file.stem]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(row(one))} |" for one in content["rows"]]
    return "\n".join([*lines, "", _measured(content)]) + "\n"


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


def _measured(content: Content) -> str:
    """One sentence: where, with what."""
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    return f"{content['cores']} cores, load {content['load']}; commit {content['commit']}; {versions}."


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
