"""Lines of benchmarks/robust.py to summary.json and table.md."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ifca.core.errors import InvalidInput
from ifca.data.files import write_atomically
from ifca.runs.units.lines import read_lines
from ifca.runs.units.unit import Line
from ifca.training.attack_effect import Served

NONE = "none"
Row = dict[str, Any]


class Case(NamedTuple):
    """What a unit trains, as its algorithm says it: attack:share:rule."""

    attack: str
    share: float
    rule: str

    @property
    def name(self) -> str:
        """In one word."""
        return f"{self.attack}:{self.share:g}:{self.rule}"

    @classmethod
    def read(cls, name: str) -> Case:
        """Back from it."""
        attack, share, rule = name.split(":", 2)
        return cls(attack, float(share), rule)


def write_table(folder: Path) -> None:
    """summary.json and table.md of a folder."""
    lines = read_lines(folder)
    if not lines:
        raise InvalidInput(f"{folder}: there is no line yet")
    found = summary(lines)
    write_atomically(folder / "summary.json", (json.dumps(found, indent=1, allow_nan=False) + "\n").encode())
    write_atomically(folder / "table.md", table(found["rows"]).encode())


def summary(lines: list[Line]) -> dict[str, Any]:
    """A row for each data, attack, rule and share: means over seeds."""
    base = {
        (line["setting"], line["seed"]): line["tests"]
        for line in lines
        if line["algorithm"] == Case(NONE, 0.0, "mean").name and "tests" in line
    }
    by: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        by.setdefault((line["setting"], line["algorithm"]), []).append(line)
    rows = []
    for (data, name), some in by.items():
        measured = [_measured(line, base.get((data, line["seed"]))) for line in some]
        case = Case.read(name)
        told = {"data": data, "attack": case.attack, "rule": case.rule, "share": case.share}
        rows.append({**told, **_means(measured), "seeds": len(some)})
    return {
        "rows": rows,
        "over": "honest clients; lost: points against no attack with the plain mean",
        "units": len(lines),
        "seconds": round(sum(line["seconds"] for line in lines), 1),
        "method": sorted({line["method"] for line in lines if "method" in line}),
        "device": sorted({line["device"] for line in lines}),
        "commit": sorted({str(line.get("commit")) for line in lines}),
        "versions": [dict(each) for each in sorted({tuple(line["versions"].items()) for line in lines})],
        "command": "python -m benchmarks.robust",
    }


def _measured(line: Line, base: list[list[int]] | None) -> Row:
    """The numbers of one training. base: the tests without attack: owner, cluster, right, samples of each."""
    if "diverged" in line:
        return {"accuracy": None, "lost": None, "lost_elsewhere": None, "diverged": 1.0}
    if "error" in line:
        beside = {"error": line["error"], "cluster_accuracy": line["cluster_accuracy"]}
        return {"accuracy": None, "lost": None, "lost_elsewhere": None, **beside}
    before = None if base is None else _honest(base, set(line.get("attackers", ())))
    if "tests" in line:
        after, attacked = _honest(line["tests"], set()), None
    else:
        right, samples = ({c: row[i] for c, *row in line["clusters"]} for i in (0, 1))
        after, attacked = Served(right, samples), line["attacked"]
    found: Row = {"accuracy": after.mean(), "lost": None, "lost_elsewhere": None}
    if before is not None:
        if attacked is None and "tests" not in line:  # attackers of all clusters: all but the worst hit
            attacked = max(after.samples, key=lambda c: before.of(c) - after.of(c))
        found["lost"] = 100 * (before.mean() - after.mean())
        found["lost_elsewhere"] = 100 * (before.mean(attacked) - after.mean(attacked))
    if line.get("backdoor_success") is not None:
        found["backdoor_success"] = line["backdoor_success"]
    return found


def _honest(tests: list[list[int]], attackers: set[int]) -> Served:
    right: dict[int | None, float] = {}
    samples: dict[int | None, float] = {}
    for owner, cluster, correct, count in tests:
        if owner not in attackers:
            right[cluster] = right.get(cluster, 0.0) + correct
            samples[cluster] = samples.get(cluster, 0.0) + count
    return Served(right, samples)


def _means(measured: list[Row]) -> Row:
    """Over seeds; null where a seed has no number."""
    found: Row = {}
    for name in dict.fromkeys(key for one in measured for key in one):
        values = [one.get(name) for one in measured]
        known = [value for value in values if value is not None and math.isfinite(value)]
        whole = len(known) == len(values) or name == "diverged"
        found[name] = round(sum(known) / len(values), 6) if known and whole else None
    return found


def table(rows: list[Row]) -> str:
    """A table for each data and share: attack by rule, points lost (elsewhere); how often backdoors open."""
    parts = []
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == data]
        rules = list(dict.fromkeys(row["rule"] for row in mine))
        for share in sorted({row["share"] for row in mine}):
            some = [row for row in mine if row["share"] == share]
            parts.append(_table(f"{data}, share {share:g}", rules, some, _cell))
        doors = [row for row in mine if row.get("backdoor_success") is not None]
        for share in sorted({row["share"] for row in doors}):
            some = [row for row in doors if row["share"] == share]
            parts.append(_table(f"{data}, share {share:g}, backdoor opens", rules, some, _opens))
    return "\n\n".join(parts) + "\n"


def _table(title: str, rules: list[str], rows: list[Row], cell: Callable[[Row], str]) -> str:
    """Attack by rule; a cell is empty where there is no row."""
    found = {(row["attack"], row["rule"]): cell(row) for row in rows}
    names = dict.fromkeys(attack for attack, _ in found)
    lines = [[title, *rules], *([name, *(found.get((name, rule), "") for rule in rules)] for name in names)]
    first, *others = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([first, "|---" * (len(rules) + 1) + "|", *others])


def _opens(row: Row) -> str:
    return f"{row['backdoor_success']:.1%}"


def _cell(row: Row) -> str:
    if row.get("error") is not None:
        return f"error {row['error']:.3f}, clusters {row['cluster_accuracy']:.1%}"
    if row["accuracy"] is None:
        return "diverged" if row.get("diverged") else ""
    if row["lost"] is None:
        return f"{row['accuracy']:.1%}"
    return f"{row['lost']:.1f} ({row['lost_elsewhere']:.1f})"
