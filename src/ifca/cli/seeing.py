"""The verbs to see a run: its page, and the live view."""

from __future__ import annotations

import warnings
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ifca.cli.options import check_there


def report_command(
    directories: Annotated[list[Path], typer.Argument(help="Run folders; several are compared on one page.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page; without it: report.html in the (first) folder."),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run, or a comparison of several."""
    check_there(*directories)
    from ifca.core.errors import RunFolderWarning, one_line
    from ifca.report.page import write_report

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RunFolderWarning)
        file = write_report(directories, out)
    typer.echo(f"page: {file} ({file.stat().st_size / 1000:,.0f} kB)")
    damage = [str(one.message) for one in told if one.category is RunFolderWarning]
    for sentence in damage:
        typer.echo(f"warning: {one_line(sentence)}", err=True)
    if damage:
        raise typer.Exit(1)


def watch_command(
    directory: Annotated[Path, typer.Argument(help="The folder of a run: not begun, going on, or finished.")],
    port: Annotated[int, typer.Option(help="The page's port on this machine; 0: any that is free.")] = 0,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="In this terminal, until the run ends.")
    ] = False,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Watch a run live: a page in the browser, or (--terminal) here."""
    try:
        if terminal:
            from rich.console import Console

            from ifca.report.terminal.live_terminal import watch_terminal

            watch_terminal(Console(), directory)
            return
        from ifca.report.page_server import PageServer

        with PageServer(directory, port) as server:
            typer.echo(f"live page of {directory}: {server.address} (this machine only; ctrl-C stops)")
            if browser:
                webbrowser.open(server.address)
            server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("watch: stopped; the run is not touched")
