"""Lines of the bench to rows: how well each method does in each regime, and how far IFCA is behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ifca.bench.regimes import regimes
from ifca.bench.rivals import RIVALS
from ifca.core.errors import InvalidInput
from ifca.data.files import write_atomically
from ifca.runs.units.lines import key, read_lines
from ifca.runs.units.unit import Line

SUMMARY = "summary.json"
OURS, PLAIN, WHOLE, ALONE = "ifca", "ifca-plain", "global", "local"
BEATEN = ("ifca-plain", "best-of-5", "oneshot", "oneshot-plain", "clove", "global")
"""Whom IFCA must not be behind; local is personal, the oracle is told."""
TABLE_SEEDS = 1000  # seeds from here on set constants and are in no table
Row = dict[str, Any]
Known = dict[tuple[str, str, int], Line]


def write_standings(folder: Path) -> dict[str, Any]:
    """summary.json of a folder, from its lines."""
    lines = read_lines(folder)
    if not lines:
        raise InvalidInput(f"{folder}: nothing is run there yet")
    found = standings(lines)
    text = json.dumps(found, indent=1, allow_nan=False)
    write_atomically(folder / SUMMARY, (text + "\n").encode())
    return found


def standings(lines: list[Line]) -> dict[str, Any]:
    """Rows over the table's seeds, and what made them."""
    lines = [line for line in lines if line["seed"] < TABLE_SEEDS]
    known = _on_common_seeds({key(line): line for line in lines if "diverged" not in line})
    rows = [row for which in (False, True) for row in _rows(known, which)]
    return {
        "rows": rows,
        "behind": behind([row for row in rows if not row["personalised"]], known),
        "personal": personal(known),
        "titles": {name: rival.title for name, rival in RIVALS.items()},
        "why": {name: regime.why for name, regime in regimes().items()},
        "units": len(lines),
        "diverged": [list(key(line)) for line in lines if "diverged" in line],
        "seconds": round(sum(line["seconds"] for line in lines), 1),
        "device": _all(lines, "device"),
        "commit": _all(lines, "commit"),
        "versions": {
            name: sorted({line["versions"][name] for line in lines if name in line["versions"]})
            for name in dict.fromkeys(name for line in lines for name in line["versions"])
        },
        "command": "ifca bench-methods",
    }


def _on_common_seeds(known: Known) -> Known:
    """Of each regime the seeds that every method has: means over other seeds could not be compared."""
    seeds: dict[str, dict[str, set[int]]] = {}
    for regime, method, seed in known:
        seeds.setdefault(regime, {}).setdefault(method, set()).add(seed)
    common = {regime: set.intersection(*methods.values()) for regime, methods in seeds.items()}
    return {name: line for name, line in known.items() if name[2] in common[name[0]]}


def personal(known: Known) -> list[Row]:
    """By regime: IFCA's models as they are, tuned by all clients, local ones, and as each client chose."""
    found = []
    for regime in regimes():
        mine = {
            seed: line for (name, method, seed), line in known.items() if (name, method) == (regime, OURS)
        }
        alone = [known[regime, ALONE, seed]["accuracy"] for seed in mine if (regime, ALONE, seed) in known]
        if not mine or len(alone) < len(mine) or any("personalised" not in line for line in mine.values()):
            continue
        three = {
            "served": [line["accuracy"] for line in mine.values()],
            "tuned": [line["tuned"]["accuracy"] for line in mine.values()],
            "local": alone,
        }
        means = {name: round(100 * float(np.mean(values)), 4) for name, values in three.items()}
        chosen = round(100 * float(np.mean([line["personalised"]["accuracy"] for line in mine.values()])), 4)
        behind = round(max(means.values()) - chosen, 4)
        found.append({"regime": regime, **means, "personalised": chosen, "behind": behind})
    return found


def _rows(known: Known, personalised: bool) -> Iterator[Row]:
    """A row for each regime and method that has lines; personalised: of the tuned models."""
    for regime in regimes():
        for method in RIVALS:
            mine = [line for (name, other, _), line in known.items() if (name, other) == (regime, method)]
            some = [line for line in mine if not personalised or "personalised" in line]
            if some:
                yield _row(regime, method, personalised, sorted(some, key=lambda line: line["seed"]), known)


def _row(regime: str, method: str, personalised: bool, lines: list[Line], known: Known) -> Row:
    scores = [line["personalised"] if personalised else line for line in lines]
    accuracy = [100 * score["accuracy"] for score in scores]
    both = list(zip(lines, scores, strict=True))
    return {
        "regime": regime,
        "method": method,
        "personalised": personalised,
        "accuracy": _mean(accuracy),
        "accuracy_std": round(float(np.std(accuracy)), 4),
        "ari": _mean([line["ari"] for line in lines if "ari" in line]),
        "live": _mean([line["live"] for line in lines]),
        "bytes_ratio": _ratio("bytes", lines, known),
        "turns_ratio": _ratio("turns", lines, known),
        "train_loss": _mean([line["train_loss"] for line in lines if "train_loss" in line]),
        "test_loss": _mean([score["test_loss"] for score in scores]),
        "worse_than_global": _worse(both, WHOLE, known),
        "worse_than_local": _worse(both, ALONE, known),
        "worst_tenth": _mean([_worst_tenth(score["by_client"]) for score in scores]),
        "seconds": _mean([line["seconds"] for line in lines]),
        "seeds": [line["seed"] for line in lines],
    }


def behind(rows: list[Row], known: Known) -> list[Row]:
    """By regime: how many points of accuracy IFCA is behind the best of the others, over common seeds."""
    found = []
    for regime in dict.fromkeys(row["regime"] for row in rows):
        seeds = {seed for name, method, seed in known if (name, method) == (regime, OURS)}
        gaps = {}
        for other in BEATEN:
            common = sorted(seed for seed in seeds if (regime, other, seed) in known)
            if common:
                theirs, ours = (
                    np.mean([known[regime, method, seed]["accuracy"] for seed in common])
                    for method in (other, OURS)
                )
                gaps[other] = round(100 * float(theirs - ours), 4)
        if gaps:
            best = max(gaps, key=lambda other: gaps[other])
            found.append({"regime": regime, "behind": gaps[best], "best": best, "gaps": gaps})
    return found


def _worse(both: list[tuple[Line, Line]], other: str, known: Known) -> float | None:
    """Share of clients that are served worse than by another method of the same seed."""
    shares = [
        np.mean(np.array(score["by_client"]) < np.array(beside["by_client"]))
        for line, score in both
        if (beside := known.get((line["setting"], other, line["seed"]))) is not None
    ]
    return _mean([float(share) for share in shares])


def _worst_tenth(by_client: list[int]) -> float:
    """Mean score of the tenth of the clients that is served worst, in percent."""
    ordered = np.sort(by_client)
    return float(ordered[: max(1, len(ordered) // 10)].mean() / 10)


def _ratio(cost: str, lines: list[Line], known: Known) -> float | None:
    """To plain IFCA's cost of the same seed."""
    pairs = [(line[cost], known.get((line["setting"], PLAIN, line["seed"]))) for line in lines]
    return _mean([mine / plain[cost] for mine, plain in pairs if plain is not None and plain[cost]])


def _mean(values: list[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


def _all(lines: list[Line], name: str) -> list[str]:
    return sorted({str(line[name]) for line in lines if line.get(name)})
