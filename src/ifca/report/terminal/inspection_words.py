"""The report of 'ifca data inspect' in words."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

MOST_COLUMNS = 40
LONGEST = 22  # letters of the examples of a column


def inspection_lines(report: dict[str, Any], width: int = 100) -> Iterator[str]:
    """Understood, columns, problems, remarks, verdict."""
    yield f"{report['path']}: read as {report['kind']}"
    if report["clients"]:
        yield from _understood(report)
    if report.get("columns"):
        yield from _columns(report, width)
    for title, kept, count in (
        ("problems", report["problems"], report["problem_count"]),
        ("remarks", report["remarks"], report["remark_count"]),
    ):
        if count:
            yield f"{title}:"
            yield from (f"  {sentence}" for sentence in kept)
            if count > len(kept):
                yield f"  ... and {count - len(kept)} more, {count} in all"
    if not report["trainable"]:
        yield "this cannot be trained on yet"
    elif report["path"].endswith(".toml"):
        yield f"this can be trained on: ifca run {report['path']}"
    else:
        yield f"this can be trained on: {report['command']}"
        yield "to change what is done, --write job.toml writes a config for: ifca run job.toml"


def _columns(report: dict[str, Any], width: int) -> Iterator[str]:
    """A line for each column: what it is, what will be done to it; then what is lost."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("column", "taken as", "what is done", "missing", "examples"):
        table.add_column(head, justify="right" if head == "missing" else "left")
    columns = report["columns"]
    for one in columns[:MOST_COLUMNS]:
        missing = str(one["missing"] or "")
        table.add_row(one["name"], one["taken_as"], one["done"], missing, _shown(one["examples"]))
    for one in report["label"]:
        kind = "number" if report["task"] == "regression" else "classes"
        table.add_row(one["name"], "the label", f"predicted: {kind}", "", _shown(one["examples"]))
    out = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    out.print(table)
    yield from (line.rstrip() for line in out.file.getvalue().rstrip().splitlines())  # type: ignore[attr-defined]
    if len(columns) > MOST_COLUMNS:
        yield f"... and {len(columns) - MOST_COLUMNS} more columns"
    if report["unlabelled_rows"]:
        yield f"  {report['unlabelled_rows']} rows have no label and are left out"
    if report["set_aside"]:
        named = ", ".join(report["set_aside"])
        yield f'  not used: {named}; a line NAME = "category" under [data.columns] uses one all the same'
    if report["standardised"]:
        yield "  all features are then brought to mean 0 and variance 1 (standardise)"


def _shown(examples: list[str]) -> str:
    """As many examples as have room."""
    text = examples[0] if examples else ""
    for one in examples[1:]:
        text += f", {one}" if len(text) + len(one) < LONGEST else ""
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _understood(report: dict[str, Any]) -> Iterator[str]:
    sizes = report["samples_per_client"]
    spread = f"{sizes['smallest']} to {sizes['largest']} each, median {sizes['median']:g}"
    yield f"  clients   {report['clients']} with {report['samples']} training samples ({spread})"
    test = report["test_samples"]
    yield "  test      " + ("none" if test is None else f"{test} samples of {report['test_clients']} clients")
    names = report["features"]
    shown = "" if names is None else ": " + ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    shape = " x ".join(map(str, report["input_shape"]))
    yield f"  features  {shape}, {report['input_type']}{shown}"
    if report["task"] == "regression":
        target = report["target"]
        spread = f"{target['smallest']:.4g} to {target['largest']:.4g}, mean {target['mean']:.4g}"
        yield f"  target    {report['targets']} number(s) a sample (regression), {spread}"
    else:
        counts, owners = report["class_samples"], report["class_clients"]
        yield f"  classes   {report['classes']} (classification); samples and clients of each:"
        for c, (samples, clients) in list(enumerate(zip(counts, owners, strict=True)))[:20]:
            share = 100 * samples / max(1, sum(counts))
            name = report["class_names"][c] if report.get("class_names") else c
            yield f"            {name}: {samples} samples ({share:.1f} %), {clients} clients"
        if len(counts) > 20:
            yield f"            ... and {len(counts) - 20} more classes"
    if report["true_clusters"] is not None:
        groups = ", ".join(f"{c}: {n}" for c, n in report["true_clusters"].items())
        yield f"  clusters  known, clients of each: {groups}"
