"""docs/results.md: every experiment's numbers beside the paper's, from the summaries that are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from typing_extensions import NotRequired, TypedDict

from ifca.core.errors import InvalidInput, Unreadable
from ifca.data.formats.json_file import read_json
from ifca.report.paper.paper_tables import name_of, paper, spread, table_of
from ifca.runs.record_schema import Count, Known, Number

PAGE, NOTES = "results.md", "results-notes.md"
Row = dict[str, Any]
DATA = {"femnist": "LEAF FEMNIST, 395-writer subset"}  # where it is not the experiment's name
TABLE_1 = {"rotated-mnist": "test_accuracy", "rotated-cifar": "test_accuracy"}
TABLE_2 = {"femnist": "test_accuracy_train_rule"}


class SummaryRow(TypedDict):
    """A number over its seeds."""

    setting: str
    algorithm: str
    metric: str
    mean: Number
    std: Known
    seeds: list[int]
    values: list[Number]
    paper_mean: Known
    paper_std: Known
    interval: NotRequired[tuple[Number, Number]]
    note: NotRequired[str]


class Summary(TypedDict):
    """What an experiment's summary.json holds."""

    rows: list[SummaryRow]
    missing: Count
    diverged: Count
    seconds: Number
    device: str | None
    versions: dict[str, str]
    commit: str | None
    older: NotRequired[Count]


class Described(Protocol):
    """What the page needs to know of an experiment."""

    @property
    def title(self) -> str:
        """Its heading."""
        ...

    @property
    def about(self) -> str:
        """What was done."""
        ...

    @property
    def deviations(self) -> tuple[str, ...]:
        """Numbers in deviations.md."""
        ...

    @property
    def paper(self) -> Mapping[tuple[str, str, str], tuple[float, float | None]]:
        """Setting, algorithm, metric -> the paper's mean and ±."""
        ...


def write_results_page(results: Path, docs: Path, experiments: Mapping[str, Described]) -> Path:
    """The page, in a checkout of the project."""
    if not (docs / NOTES).is_file():
        raise InvalidInput(
            f"{docs / NOTES}: not there; 'ifca reproduce docs' is for a checkout of the project"
        )
    if not any(_summary(results / name / "summary.json") for name in experiments):
        raise InvalidInput(f"{results}: no results of any experiment there; the page is left as it is")
    notes = (docs / NOTES).read_text("utf-8")
    (docs / PAGE).write_text(results_page(results, notes, experiments), "utf-8")
    return docs / PAGE


def results_page(results: Path, notes: str, experiments: Mapping[str, Described]) -> str:
    """Two tables against the paper's, then every experiment; notes: prose by section, written by hand.

    Remarks on results are left out where there are none yet.
    """
    said = sections(notes)
    found = {name: _summary(results / name / "summary.json") for name in experiments}
    parts = [
        "# Results\n",
        said.get("opening", ""),
        "## The paper's Table 1\n",
        _against(found, experiments, TABLE_1),
        said.get("table 1", "") if any(found[name] for name in TABLE_1) else "",
        "## The paper's Table 2\n",
        _against(found, experiments, TABLE_2),
        said.get("table 2", "") if any(found[name] for name in TABLE_2) else "",
    ]
    for name, experiment in experiments.items():
        parts += _experiment(name, experiment, found[name], results, said.get(name, ""))
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def sections(notes: str) -> dict[str, str]:
    """Heading (## NAME) -> text."""
    found = re.split(r"^## +(.+)$", notes, flags=re.MULTILINE)
    return {
        name.strip(): text.strip() + "\n"
        for name, text in zip(found[1::2], found[2::2], strict=True)
        if text.strip()
    }


def _summary(file: Path) -> dict[str, Any] | None:
    """What is there; None where nothing is run."""
    if not file.is_file():
        return None
    again = f"'ifca reproduce {file.parent.name} --no-run' makes it again"
    found = cast("dict[str, Any]", read_json(file, Summary, again))
    for row in found["rows"]:
        fitted = row["metric"] == "exponent"
        if (fitted and len(row.get("interval", ())) != 2) or (row["std"] is None and not fitted):
            told = f"the row of {row['setting']}, {row['algorithm']}, {row['metric']} is not whole"
            raise Unreadable(f"{file}: {told}; {again}")
    return found if found["rows"] else None


def _against(
    found: dict[str, dict[str, Any] | None], experiments: Mapping[str, Described], table: dict[str, str]
) -> str:
    """Ours against the paper's: a line for each setting and algorithm that the paper has a number for."""
    lines = [
        "| data | setting | algorithm | ours | paper | difference | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, metric in table.items():
        rows = (found[name] or {"rows": []})["rows"]
        there = {(row["setting"], row["algorithm"], row["metric"]) for row in rows}
        for row in rows:
            known = row["paper_mean"] is not None and row["metric"].startswith("test_accuracy")
            if known or row["metric"] == metric:
                theirs = paper(row) if known else "–"
                gap = f"{round(row['mean'] - row['paper_mean'], 2) + 0.0:+.2f}" if known else "–"
                cells = [*_which(name, row), f"{row['mean']:.2f}{spread(row)}", theirs, gap]
                lines.append(f"| {' | '.join(cells)} | {len(row['seeds'])} |")
        for (setting, algorithm, what), (mean, std) in experiments[name].paper.items():
            if (setting, algorithm, what) not in there:
                row = {"setting": setting, "algorithm": algorithm, "metric": what}
                theirs = paper({"paper_mean": mean, "paper_std": std})
                lines.append(f"| {' | '.join(_which(name, row))} | not run yet | {theirs} | | |")
    return "\n".join(lines) + "\n"


def _which(name: str, row: Row) -> list[str]:
    rule = " (authors' rule, D10)" if row["metric"].endswith("authors_rule") else ""
    return [DATA.get(name, name), row["setting"], name_of(row["algorithm"]) + rule]


def _experiment(
    name: str, experiment: Described, summary: dict[str, Any] | None, results: Path, note: str
) -> list[str]:
    parts = [f"## {experiment.title}\n", f"{experiment.about}\n", f"```\nifca reproduce {name}\n```\n"]
    if experiment.deviations:
        links = ", ".join(experiment.deviations)
        parts.append(f"Deviations that apply ([deviations.md](deviations.md)): {links}.\n")
    if summary is None:
        return [*parts, "**Not run yet.**\n"]
    if summary["missing"]:
        parts.append(f"Units of this experiment that are **not run yet**: {summary['missing']}.\n")
    parts.append(table_of(summary))
    if (results / name / f"{name}.png").is_file():
        parts.append(f"![{experiment.title}](../results/{name}/{name}.png)\n")
    made = [f"{what} {version}" for what, version in summary["versions"].items()]
    made += [f"commit {summary['commit']}"] if summary["commit"] else []
    parts.append(
        f"Numbers: [`results/{name}`](../results/{name}/summary.json). Made on {summary['device']}"
        f"{' with ' if made else ''}{', '.join(made)}; {_duration(summary['seconds'])} in all.\n"
    )
    return [*parts, note]


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
