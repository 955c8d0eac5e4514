"""Lines to rows: mean and ± over seeds beside the paper's number; summary.json."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ifca.core.errors import InvalidInput
from ifca.data.files import write_atomically
from ifca.paper.frame import Experiment, Paper
from ifca.paper.statistics import mean_std, wilson
from ifca.runs.units.lines import RUNS, key, read_lines
from ifca.runs.units.unit import Line

SUMMARY = "summary.json"
SHARES = ("all_right", "success")  # yes or no: reported as a share, with an interval
Row = dict[str, Any]


def write_summary(experiment: Experiment, folder: Path, quick: bool) -> dict[str, Any]:
    """summary.json of a folder, from its lines."""
    lines = finished(experiment, folder, quick)
    try:
        found = summary(experiment, lines, quick)
        text = json.dumps(found, indent=1, allow_nan=False)
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as reason:
        what = f"a line does not hold what {experiment.name} measures ({type(reason).__name__}: {reason})"
        raise InvalidInput(f"{folder / RUNS}: {what}; it was altered") from reason
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SUMMARY, (text + "\n").encode())
    return found


def finished(experiment: Experiment, folder: Path, quick: bool) -> list[Line]:
    """The lines of a folder in the order of the units, in whatever order they were run."""
    units = experiment.units(quick=quick, seeds=range(1))
    order = {(unit.setting, unit.algorithm): place for place, unit in enumerate(units)}
    lines = read_lines(folder, quick)
    for number, line in enumerate(lines, 1):
        if key(line)[:2] not in order:
            what = f"line {number} ({line['setting']}, {line['algorithm']}) is no unit of {experiment.name}"
            raise InvalidInput(f"{folder / RUNS}: {what}; remove it or choose another --out")
        for metric in experiment.metrics:
            value = line.get(metric)
            if not isinstance(value, int | float | None) or value in (math.inf, -math.inf):
                what = f"line {number} has {value!r:.40} as its {metric}"
                raise InvalidInput(f"{folder / RUNS}: {what}, not a number; remove it")
    return sorted(lines, key=lambda line: (line["seed"], order[key(line)[:2]]))


def summary(experiment: Experiment, lines: list[Line], quick: bool) -> dict[str, Any]:
    """Rows, and what made them."""
    asked = experiment.units(quick=quick)
    done = {(line["setting"], line["algorithm"], line["seed"]) for line in lines}
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "quick": quick,
        "rows": [*rows(experiment, experiment.compared(lines), quick), *experiment.derived(lines)],
        "units": len(lines),
        "missing": sum(unit.key not in done for unit in asked),
        "diverged": sum("diverged" in line for line in lines),
        "seconds": round(sum(line["seconds"] for line in lines), 2),
        "device": _all(lines, "device"),
        "versions": {
            name: ", ".join(
                sorted({str(line["versions"][name]) for line in lines if name in line["versions"]})
            )
            for name in dict.fromkeys(name for line in lines for name in line["versions"])
        },
        "commit": _all(lines, "commit"),
        "older": sum("commit" not in line for line in lines),  # units of a code that did not write it down
        "command": f"ifca reproduce {experiment.name}{' --quick' if quick else ''}",
    }


def rows(experiment: Experiment, lines: list[Line], quick: bool) -> list[Row]:
    """A row for each setting, algorithm and metric, over its seeds; the paper's numbers are of full runs."""
    done = [line for line in lines if "diverged" not in line]
    parts = [experiment.spread(line) for line in done]
    parts += [failures(experiment, line, done) for line in lines if "diverged" in line]
    groups: dict[tuple[str, str], list[Line]] = {}
    for some in sorted(parts, key=lambda some: (-len(some), some[0]["seed"])):
        for line in some:
            groups.setdefault((line["setting"], line["algorithm"]), []).append(line)
    order = _order(experiment, list(groups))
    return [
        _row(
            {} if quick else experiment.paper,
            which,
            metric,
            [line for line in groups[which] if line.get(metric) is not None],
        )
        for which in order
        for metric in experiment.metrics
        if any(line.get(metric) is not None for line in groups[which])
    ]


def failures(experiment: Experiment, diverged: Line, done: list[Line]) -> list[Line]:
    """A diverged unit as a failure in every share of successes that finished units of its kind are in."""
    own = [line for line in done if line["algorithm"] == diverged["algorithm"]]
    own = [line for line in own if line["setting"] == diverged["setting"]] or own[:1]
    alike = [one for line in own for one in experiment.spread({**line, "setting": diverged["setting"]})]
    if not alike:  # none has finished: all shares of the experiment
        alike = [{**diverged, **dict.fromkeys(set(SHARES) & set(experiment.metrics), False)}]
    places = {(one["setting"], one["algorithm"]): one for one in alike}
    common = {"seed": diverged["seed"], "seconds": diverged["seconds"] / len(places)}
    return [
        {"setting": setting, "algorithm": algorithm, **common, **{s: False for s in SHARES if s in one}}
        for (setting, algorithm), one in places.items()
    ]


def _row(paper: Paper, which: tuple[str, str], metric: str, lines: list[Line]) -> Row:
    scale = 100.0 if is_percent(metric) else 1.0
    values = [round(scale * float(line[metric]), 6) for line in lines]
    mean, std = mean_std(values)
    theirs = paper.get((*which, metric), (None, None))
    row: Row = {
        "setting": which[0],
        "algorithm": which[1],
        "metric": metric,
        "mean": mean,
        "std": std,
        "seeds": [line["seed"] for line in lines],
        "values": values,
        "paper_mean": theirs[0],
        "paper_std": theirs[1],
        "seconds": round(sum(line["seconds"] for line in lines), 2),
    }
    if metric in SHARES:
        row["interval"] = [100 * end for end in wilson(sum(bool(line[metric]) for line in lines), len(lines))]
    return row


def is_percent(metric: str) -> bool:
    """Accuracies and shares are reported in percent."""
    return "accuracy" in metric or metric in (*SHARES, "identity_error")


def _order(experiment: Experiment, found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """By setting, then algorithm, as the experiment has them; what lines were spread into as it comes."""
    scale = [*experiment.full.algorithms.items(), *experiment.quick.algorithms.items()]
    settings = list(dict.fromkeys(setting for setting, _ in scale))
    if not {setting for setting, _ in found} <= set(settings):
        settings = [setting for setting, _ in found]
    algorithms = list(dict.fromkeys(algorithm for _, some in scale for algorithm in some))
    algorithms += [algorithm for _, algorithm in found]
    return sorted(found, key=lambda which: (settings.index(which[0]), algorithms.index(which[1])))


def _all(lines: list[Line], name: str) -> str | None:
    return ", ".join(sorted({str(line[name]) for line in lines if line.get(name)})) or None
