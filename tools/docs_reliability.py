"""The tables of docs/reliability.md from what was measured: python tools/docs_reliability.py writes them.

A table stands between <!-- fuzz --> or <!-- power cuts --> and <!-- end -->. The numbers are those of
results/fuzz, made by benchmarks/fuzz.py and benchmarks/power_cuts.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "reliability.md", ROOT / "results" / "fuzz"
TABLE = re.compile(r"(<!-- (fuzz|power cuts) -->\n).*?(<!-- end -->)", re.DOTALL)
WHAT = {
    "config": "configs in TOML",
    "--set": "words of `--set`",
    "npz": "`.npz` files",
    "csv": "`.csv` files",
    "parquet": "`.parquet` files",
    "leaf": "LEAF's JSON",
    "ids": "names of clients",
    "checkpoint": "checkpoints",
    "models": "models, opened to be used",
    "flower": "messages of Flower",
    "run folder": "run folders, read to be shown",
    "page": "run folders, and the page of them",
    "reproduce": "results of `reproduce`",
    "resume": "`resume` of a run that was interrupted",
    "resume finished": "`resume` of a finished run",
    "report": "`report`",
    "watch": "`watch`",
    "assign": "`assign`",
    "predict": "`predict`",
    "export": "`export`",
    "check": "`check`",
    "continue": "`continue`",
    "run": "`run` with other configs, a round each",
    "command line": "command lines",
}
"""Kinds of benchmarks/fuzz.py, in words."""
Part = dict[str, Any]


def with_tables(page: str) -> str:
    """The page with every table made anew."""
    made: dict[str, Callable[[], str]] = {"fuzz": fuzz_table, "power cuts": power_table}
    return TABLE.sub(lambda found: f"{found[1]}\n{made[found[2]]()}\n{found[3]}", page)


def fuzz_table() -> str:
    """A line per kind, and all together."""
    kinds: dict[str, list[Part]] = json.loads((RESULTS / "counts.json").read_text())
    heads = (
        "what is mutated",
        "executions",
        "refused in a sentence",
        "accepted",
        "failures",
        "since",
    )
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    rows = {kind: _numbers(kinds[kind]) for kind in WHAT if kind in kinds}
    lines += [_line(WHAT[kind], numbers) for kind, numbers in rows.items()]
    total = [sum(column) for column in zip(*rows.values(), strict=True)]
    return "\n".join([*lines, _line("**all**", total), "", _measured(kinds)]) + "\n"


def _numbers(parts: list[Part]) -> list[int]:
    """Executions, refused, accepted, failures, and executions at commits after the last failure."""
    told = [sum(part["outcomes"].get(name, 0) for part in parts) for name in ("refused", "accepted")]
    executions, since = sum(part["executions"] for part in parts), 0
    for part in parts:
        since = 0 if part["failures"] else since + part["executions"]
    return [executions, *told, executions - sum(told), since]


def _line(name: str, numbers: list[int]) -> str:
    return f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} |"


def _measured(kinds: dict[str, list[Part]]) -> str:
    parts = [part for some in kinds.values() for part in some]
    commits = sorted({part["commit"] for part in parts})
    versions = parts[-1]["versions"]
    return (
        f"*At {', '.join(commits)}; Python {versions['python']}, numpy {versions['numpy']}, "
        f"torch {versions['torch']}.*"
    )


def power_table() -> str:
    """A line per job."""
    found = json.loads((RESULTS / "power_cuts.json").read_text())
    heads = (
        "run",
        "cut at",
        "folders that it leaves",
        "gone on by `resume`",
        "by the same `run`",
        "otherwise",
    )
    lines = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * (len(heads) - 2)]
    for name, job in found.items():
        if isinstance(job, dict) and "gone_on_by" in job:
            by = job["gone_on_by"]
            where = "every byte" if job["every"] == 1 else f"every {job['every']}th byte"
            known = by.get("resume", 0), by.get("run", 0)
            counts = (job["folders"], *known, job["folders"] - sum(known))
            lines.append(f"| {name} | {where} | {' | '.join(f'{count:,}' for count in counts)} |")
    return "\n".join([*lines, "", f"*At {found['commit']}.*"]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
