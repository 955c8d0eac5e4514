"""The verbs of 'ifca data': list, get, check, inspect."""

from __future__ import annotations

import sys

import typer

from ifca.cli.inspecting import inspect_command
from ifca.cli.options import DataDir
from ifca.core.errors import InvalidInput

app = typer.Typer(no_args_is_help=True, help="Public data sets: list, get, check; your own: inspect.")


@app.command("list")
def list_command(data_dir: DataDir = None) -> None:
    """Which data sets there are, and where they are here."""
    from rich.console import Console
    from rich.table import Table

    from ifca.data.public.places import data_folders
    from ifca.data.public.public_sets import SOURCES

    table = Table("name", "what", "where", box=None)
    for source in SOURCES:
        table.add_row(source.name, source.about, str(source.where(data_dir) or "not here"))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    typer.echo("looked in: " + ", ".join(str(folder) for folder in data_folders(data_dir)))


@app.command()
def get(name: str, data_dir: DataDir = None) -> None:
    """Fetch a data set into the data folder, or go on with it; what is there and whole is left alone."""
    from rich.console import Console

    from ifca.data.public.fetch import get as get_data
    from ifca.data.public.public_sets import source_of
    from ifca.report.terminal.downloads import watching_files

    source = source_of(name)
    console = Console()
    with watching_files(console, plain=not console.is_terminal) as watcher:
        found = get_data(source, data_dir, watcher)
    typer.echo(f"{name}: {found}, checked, in {source.where(data_dir)}")


@app.command()
def check(data_dir: DataDir = None) -> None:
    """Read every data set that is here, byte by byte; exit code 1 where one is damaged."""
    from ifca.data.public.public_sets import SOURCES

    damaged = False
    for source in SOURCES:
        where = source.where(data_dir)
        if where is None:
            typer.echo(f"{source.name}: not here; 'ifca data get {source.name}'")
            continue
        try:
            typer.echo(f"{source.name}: {source.check(data_dir)}, checked, in {where}")
        except InvalidInput as reason:
            damaged = True
            typer.echo(f"{source.name}: {reason}")
    if damaged:
        sys.exit(1)


app.command("inspect")(inspect_command)
