"""The verb 'ifca data inspect'."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ifca.cli.options import Json, Trust


def inspect_command(
    path: Annotated[
        Path, typer.Argument(help="A folder of client files, a table, a LEAF folder, or a config.")
    ],
    label: Annotated[list[str] | None, typer.Option(help="The column of the label; repeatable.")] = None,
    client: Annotated[str | None, typer.Option(help="A table's column that says whose a row is.")] = None,
    feature: Annotated[list[str] | None, typer.Option(help="A column of the features; repeatable.")] = None,
    test: Annotated[str | None, typer.Option(help="A column that marks the rows to test on.")] = None,
    cluster: Annotated[str | None, typer.Option(help="A column with the true cluster.")] = None,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    classes: Annotated[int | None, typer.Option(help="Number of classes.")] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write a config for 'ifca run' here, where it can be trained on.")
    ] = None,
    most: Annotated[int, typer.Option(help="Problems to list; all are counted.")] = 20,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Say what is understood of your data and what is wrong with it; exit code 2: cannot be trained on."""
    from ifca.report.terminal.inspection_words import inspection_lines
    from ifca.runs.inspect_data import inspect_path, write_starter_config

    options = {"label": label, "features": feature, "test": test, "cluster": cluster, "client": client}
    given: dict[str, Any] = {name: value for name, value in options.items() if value}
    given |= {"task": task, "classes": classes}
    report = inspect_path(path, given, most, trust)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        for line in inspection_lines(report, shutil.get_terminal_size((110, 24)).columns):
            typer.echo(line)
    if write is not None and report["trainable"]:
        write_starter_config(path, given, write)
        typer.echo(f"wrote {write}; now: ifca run {write}", err=as_json)
    if not report["trainable"]:
        sys.exit(2)
