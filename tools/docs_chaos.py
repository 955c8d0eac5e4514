"""The tables on soaks in docs/reliability.md from what was measured: python tools/docs_chaos.py writes them.

A table stands between <!-- soak --> or <!-- dropouts --> and <!-- end -->. The numbers are those of
results/chaos, made by benchmarks/chaos.py and benchmarks/dropouts.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "reliability.md", ROOT / "results" / "chaos"
TABLE = re.compile(r"(<!-- (soak|dropouts) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """The page with both tables made anew."""
    made: dict[str, Callable[[], str]] = {"soak": soak_table, "dropouts": dropouts_table}
    return TABLE.sub(lambda found: f"{found[1]}\n{made[found[2]]()}\n{found[3]}", page)


def soak_table() -> str:
    """What happened, how often, and what came out."""
    found = json.loads((RESULTS / "soak.json").read_text())
    lines = ["| what happened | times |", "|---|---:|"]
    lines += [f"| {name} | {count:,} |" for name, count in found["faults"].items()]
    same = "the same to the last bit" if found["equal_to_the_loop"] else "**others**"
    lines += [
        "",
        f"{found['rounds']:,} rounds of {found['clients']} clients in {found['seconds'] / 60:.0f} minutes, "
        f"{found['servers']} servers one after the other; models against an undisturbed loop: {same}.",
        "",
        "| memory of the longest-lived | rounds | MB early | MB late | change |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in found["memory"]:
        change = f"{row['percent']:+.2f} %"
        lines.append(
            f"| {row['process']} | {row['rounds']:,} | {row['first_mb']} | {row['last_mb']} | {change} |"
        )
    return "\n".join([*lines, "", _measured(found)]) + "\n"


def dropouts_table() -> str:
    """A line per algorithm and share."""
    rows = json.loads((RESULTS / "dropouts.json").read_text())["rows"]
    heads = ("algorithm", "replies lost", "rounds", "Rand index", "training loss", "s a round", "memory")
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for row in rows:
        cells = (
            f"`{row['algorithm']}`",
            f"{100 * (1 - row['replies_share']):.1f} %",
            str(row["rounds"]),
            f"{row['rand_index']:.3f}",
            f"{row['train_loss']:.3f}",
            f"{row['seconds_a_round']:.1f}",
            f"{row['memory_gib'][0]:.2f} GiB, {row['memory_percent']:+.2f} %",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _measured(rows[-1])]) + "\n"


def _measured(found: dict[str, Any]) -> str:
    versions = found["versions"]
    return f"*At {found['commit']}; Python {versions['python']}, torch {versions['torch']}.*"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
