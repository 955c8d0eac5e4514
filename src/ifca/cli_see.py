"""The verbs to see a run: its page, and the live view."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ifca.core.errors import InvalidInput
from ifca.report.live import LiveRun
from ifca.report.page import write_page
from ifca.report.show import REPORT


def report_command(
    directories: Annotated[list[Path], typer.Argument(help="Run folders; several are compared on one page.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page; without it: report.html in the (first) folder."),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run, or a comparison of several."""
    runs = [LiveRun(folder).read() for folder in directories]
    for run in runs:
        if not run.rounds:
            raise InvalidInput(f"{run.path}: has no round yet, there is nothing to report")
    if len(directories) > 1 and out is None:
        raise InvalidInput("several runs: say where the page should go, with -o page.html")
    file = write_page(runs, out or directories[0] / REPORT)
    typer.echo(f"page: {file} ({file.stat().st_size / 1000:,.0f} kB)")
