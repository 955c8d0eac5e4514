"""A run on the terminal: watched while it trains, shown when it is finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from ifca.report.figures import write_figures
from ifca.report.progress import Bars, Lines, watching
from ifca.report.read import read_run
from ifca.report.tables import clusters_table, comparison_table, events_table, restarts_table
from ifca.report.use import metrics_table

Watcher = Bars | Lines


def watched(job: Callable[[Watcher], object], folder: Path, quiet: bool) -> None:
    """Train under a progress bar, then show what came out."""
    console = Console()
    with watching(console, plain=quiet or not console.is_terminal) as progress:
        job(progress)
    show(console, folder)


def show(console: Console, folder: Path) -> None:
    """Tables, figures and remarks of a finished run."""
    finished = read_run(folder)
    summary = finished.summary
    if not console.is_terminal:
        console = Console(width=140)
    if len(summary["restarts"]) > 1:
        console.print(restarts_table(finished))
    if summary["clusters"] is not None:
        console.print(clusters_table(finished))
        if summary.get("events"):
            console.print(events_table(finished))
        if summary["live_clusters"] < summary["k"]:
            console.print(_fewer(summary))
    console.print(comparison_table(finished))
    if summary.get("test_metrics"):
        console.print(metrics_table(finished))
    for name, baseline in summary.get("baselines", {}).items():
        if "error" in baseline:
            console.print(f"{name}: {baseline['error']}", soft_wrap=True, highlight=False, markup=False)
    for figure in write_figures(finished):
        console.print(f"figure: {figure}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"run folder: {folder}", soft_wrap=True, highlight=False, markup=False)


def _fewer(summary: dict[str, Any]) -> str:
    live, k = summary["live_clusters"], summary["k"]
    if summary["algorithm"] == "ifca":
        return f"The data support {live} of the {k} clusters asked for: no client needs the other models."
    return f"Only {live} of {k} clusters have clients: try more restarts, or a smaller k."
