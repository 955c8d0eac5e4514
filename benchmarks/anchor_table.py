"""Lines of benchmarks/anchors.py to summary.json and table.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import anchor_linear
from benchmarks.anchor_settings import Anchor

from ifca.data.files import write_atomically
from ifca.runs.units.lines import read_lines
from ifca.runs.units.unit import Line

Row = dict[str, Any]


def write_table(folder: Path, anchors: dict[str, Anchor], linear: str) -> None:
    """summary.json and table.md of a folder. linear: the name of BR-IFCA's setting."""
    lines = read_lines(folder)
    found = summary(lines, anchors, linear)
    write_atomically(folder / "summary.json", (json.dumps(found, indent=1, allow_nan=False) + "\n").encode())
    write_atomically(folder / "table.md", table(found).encode())


def summary(lines: list[Line], anchors: dict[str, Anchor], linear: str) -> dict[str, Any]:
    """A row for each table, setting and method, over the seeds that were run."""
    rows = []
    for name, anchor in anchors.items():
        for method in anchor.methods:
            of = [line for line in lines if (line["setting"], line["algorithm"]) == (name, method)]
            of = [line for line in of if line["seed"] in anchor.seeds]
            where = {"table": anchor.table, "setting": anchor.setting}
            published = anchor.published.get(method)
            rows += [_row({**where, "method": method}, of, "accuracy", 100, published, anchor.differs)]
    for method in anchor_linear.METHODS:
        of = [line for line in lines if (line["setting"], line["algorithm"]) == (linear, method)]
        where = {"table": anchor_linear.TABLE, "setting": anchor_linear.SETTING}
        rows += [_row({**where, "method": method}, of, "distance", 1, None, anchor_linear.DIFFERS)]
    return {
        "rows": [row for row in rows if row["values"] or row["diverged"]],
        "command": "python -m benchmarks.anchors",
    }


def _row(where: Row, of: list[Line], measure: str, times: int, published: float | None, differs: str) -> Row:
    of = sorted(of, key=lambda line: line["seed"])
    ended = [line for line in of if measure in line]
    values = [round(times * line[measure], 4) for line in ended]
    return {
        **where,
        "mean": round(float(np.mean(values)), 4) if values else None,
        "std": round(float(np.std(values, ddof=1)), 4) if len(values) > 1 else None,
        "values": values,
        "published": published,
        "differs": differs,
        "measure": measure,
        "ari": [round(line["ari"], 3) for line in ended if "ari" in line],
        "seeds": [line["seed"] for line in ended],
        "diverged": [line["seed"] for line in of if "diverged" in line],
        "seconds": round(sum(line["seconds"] for line in of), 1),
        "device": sorted({line["device"] for line in of}),
        "commit": sorted({str(line.get("commit")) for line in of}),
        "versions": [dict(each) for each in sorted({tuple(line["versions"].items()) for line in of})],
    }


def table(found: dict[str, Any]) -> str:
    """Markdown: a table for each setting."""
    settings = dict.fromkeys((row["table"], row["setting"]) for row in found["rows"])
    return "\n".join(_setting(where, found["rows"]) for where in settings)


def _setting(where: tuple[str, str], rows: list[Row]) -> str:
    rows = [row for row in rows if (row["table"], row["setting"]) == where]
    head = "| method | ours (seeds) | published | clusters found (ARI) |\n|---|---|---|---|"
    return "\n".join((f"### {': '.join(where)}\n", head, *map(_cells, rows), f"\n{rows[0]['differs']}\n"))


def _cells(row: Row) -> str:
    digits = 3 if row["measure"] == "distance" else 1
    std = "" if row["std"] is None else f" ± {row['std']:.{digits}f}"
    seeds = len(row["values"])
    ours = "diverged" if row["mean"] is None else f"{row['mean']:.{digits}f}{std} ({seeds})"
    published = "" if row["published"] is None else f"{row['published']:.1f}"
    ari = f"{np.mean(row['ari']):.2f}" if row["ari"] else ""
    return f"| {row['method']} | {ours} | {published} | {ari} |"
