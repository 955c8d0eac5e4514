"""Lines of benchmarks/private.py to summary.json and table.md."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from pathlib import Path
from statistics import fmean, stdev

from ifca.data.files import write_atomically
from ifca.runs.units.lines import read_lines
from ifca.runs.units.unit import Line

ABOUT = "accuracy over all test samples, each test client by the model with the lowest loss on its test data"
Settings = Mapping[str, tuple[int, int | None]]
"""Name -> clients and epsilon."""
Methods = Mapping[str, tuple[str, bool]]
"""Row -> algorithm, whether it begins with models of public images."""


def write_table(folder: Path, settings: Settings, methods: Methods, seeds: Container[int]) -> None:
    """summary.json and table.md of a folder, from the seeds that are done."""
    lines = [line for line in read_lines(folder) if "accuracy" in line and line["seed"] in seeds]
    rows = [
        _row(mine, *settings[setting], method)
        for setting in settings
        for method in methods
        if (mine := [one for one in lines if (one["setting"], one["algorithm"]) == (setting, method)])
    ]
    names = ("commit", "versions", "device")
    made = {name: sorted({json.dumps(line[name]).strip('"') for line in lines}) for name in names}
    content = json.dumps({"about": ABOUT, "rows": rows, **made}, indent=1) + "\n"
    write_atomically(folder / "summary.json", content.encode())
    write_atomically(folder / "table.md", table(rows, methods).encode())


def _row(lines: list[Line], clients: int, epsilon: int | None, method: str) -> Line:
    values = [line["accuracy"] for line in sorted(lines, key=lambda line: int(line["seed"]))]
    return {
        "data": "Rotated MNIST",
        "clients": clients,
        "method": method,
        "epsilon": epsilon,
        "delta": None if epsilon is None else 1e-5,
        **{name: lines[0][name] for name in ("noise", "clip", "rounds")},
        "accuracy": fmean(values),
        "std": stdev(values) if len(values) > 1 else None,
        "values": values,
        "right": fmean(line["right"] for line in lines),
    }


def table(rows: list[Line], methods: Methods) -> str:
    """For each number of clients methods by epsilon: percent (and clients in the right cluster)."""
    parts, epsilons = [], dict.fromkeys(row["epsilon"] for row in rows)
    heads = [f"epsilon {epsilon}" if epsilon else "without privacy" for epsilon in epsilons]
    for m in dict.fromkeys(row["clients"] for row in rows):
        lines = [f"| {m:,} clients | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
        for method, (algorithm, _) in methods.items():
            mine = {r["epsilon"]: r for r in rows if (r["clients"], r["method"]) == (m, method)}
            cells = [_cell(mine.get(epsilon), clusters=algorithm != "global") for epsilon in epsilons]
            lines.append(f"| {method} | {' | '.join(cells)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _cell(row: Line | None, *, clusters: bool) -> str:
    if row is None:
        return "–"
    spread = "" if row["std"] is None else f" ± {100 * row['std']:.1f}"
    return f"{100 * row['accuracy']:.1f}{spread}" + (f" ({100 * row['right']:.0f} %)" if clusters else "")
