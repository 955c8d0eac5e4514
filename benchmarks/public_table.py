"""Lines of benchmarks/public_versions.py to summary.json and table.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.public_doubles import DOUBLES
from scipy.stats import t as student

from ifca.bench.rivals import RIVALS
from ifca.core.errors import InvalidInput
from ifca.data.files import write_atomically
from ifca.runs.units.lines import read_lines
from ifca.runs.units.unit import Line

PLAIN = "ifca-plain"
TRIED = 1000  # seeds from here on are in no table
Row = dict[str, Any]


def write_table(folder: Path, why: dict[str, str]) -> None:
    """summary.json and table.md of a folder; why: what each regime is, in the order of the table."""
    lines = [line for line in read_lines(folder) if line["seed"] < TRIED]
    if not lines:
        raise InvalidInput(f"{folder}: there is no line of a seed below {TRIED}")
    found = summary(lines, why)
    write_atomically(folder / "summary.json", (json.dumps(found, indent=1, allow_nan=False) + "\n").encode())
    write_atomically(folder / "table.md", table(found).encode())


def summary(lines: list[Line], why: dict[str, str]) -> dict[str, Any]:
    """A row for each regime and method, over the seeds that all methods of the regime have."""
    rows = [row for regime in why for row in _rows([line for line in lines if line["setting"] == regime])]
    return {
        "rows": rows,
        "why": why,
        "units": len(lines),
        "seconds": round(sum(line["seconds"] for line in lines), 1),
        "device": sorted({line["device"] for line in lines}),
        "commit": sorted({str(line.get("commit")) for line in lines}),
        "versions": [dict(each) for each in sorted({tuple(line["versions"].items()) for line in lines})],
        "command": "python -m benchmarks.public_versions",
    }


def _rows(lines: list[Line]) -> list[Row]:
    """The rows of one regime."""
    by: dict[str, dict[int, Line]] = {}
    for line in lines:
        if "diverged" not in line:
            by.setdefault(line["algorithm"], {})[line["seed"]] = line
    if PLAIN not in by:
        return []
    seeds = sorted(set.intersection(*(set(of) for of in by.values())))
    order = [*RIVALS, *DOUBLES]
    return [
        _row(name, [by[name][seed] for seed in seeds], [by[PLAIN][seed] for seed in seeds])
        for name in sorted(by, key=order.index)
        if seeds
    ]


def _row(method: str, lines: list[Line], plain: list[Line]) -> Row:
    def of(field: str) -> list[float]:
        return [float(line[field]) for line in lines]

    accuracy = 100 * np.array(of("accuracy"))
    cost, half = paired(accuracy - 100 * np.array([line["accuracy"] for line in plain]))
    return {
        "regime": lines[0]["setting"],
        "method": method,
        "accuracy": _mean(accuracy),
        "accuracy_std": round(float(accuracy.std(ddof=1)), 4) if len(accuracy) > 1 else None,
        "against_plain": cost,
        "against_plain_half": half,
        "reported": _mean(100 * np.array(of("reported"))),
        "ari": _mean(of("ari")),
        "reported_ari": _mean(of("reported_ari")),
        "live": _mean(of("live")),
        "found_all": sum(value > 0.999 for value in of("ari")),
        "seeds": [line["seed"] for line in lines],
    }


def paired(differences: np.ndarray) -> tuple[float, float | None]:
    """The mean difference, and half of its 95% interval (Student's t); None of one seed."""
    n = len(differences)
    if n < 2:
        return _mean(differences), None
    half = student.ppf(0.975, n - 1) * differences.std(ddof=1) / n**0.5
    return _mean(differences), round(float(half), 4)


def table(found: dict[str, Any]) -> str:
    """Markdown: a table for each regime."""
    parts = []
    for regime, why in found["why"].items():
        rows = [row for row in found["rows"] if row["regime"] == regime]
        if rows:
            head = f"### {regime}: {why}\n\nSeeds: {', '.join(map(str, rows[0]['seeds']))}.\n"
            names = "| version | accuracy | against plain | as reported | ARI | ARI as reported | models |"
            parts.append("\n".join([head, f"{names} all found |", "|---" * 8 + "|", *map(_cells, rows)]))
    return "\n\n".join(parts) + "\n"


def _cells(row: Row) -> str:
    name = row["method"]
    title = f"**{RIVALS[name].title}**" if name in RIVALS else f"`{name}`"
    half = "" if row["against_plain_half"] is None else f" ± {row['against_plain_half']:.1f}"
    against = "" if name == PLAIN else f"{row['against_plain']:+.1f}{half}"
    cells = (
        title,
        f"{row['accuracy']:.1f}",
        against,
        f"{row['reported']:.1f}",
        f"{row['ari']:.2f}",
        f"{row['reported_ari']:.2f}",
        f"{row['live']:.1f}",
        f"{row['found_all']} of {len(row['seeds'])}",
    )
    return f"| {' | '.join(cells)} |"


def _mean(values: Any) -> float:
    return round(float(np.mean(values)), 4)
