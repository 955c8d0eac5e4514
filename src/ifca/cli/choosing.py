"""The verb 'ifca choose-k'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ifca.cli.options import (
    Client,
    Device,
    Engine,
    Job,
    Json,
    Label,
    Model,
    Preset,
    Quiet,
    Settings,
    Trust,
    Workers,
)
from ifca.cli.running import read_job
from ifca.core.errors import Interrupted


def choose_k_command(
    job: Job = None,
    label: Label = None,
    client: Client = None,
    preset: Preset = None,
    ks: Annotated[str, typer.Option("--k", help="Numbers of clusters to try, first:last.")] = "1:6",
    seeds: Annotated[int, typer.Option(help="Trainings for each k, all on the same data.")] = 3,
    settings: Settings = None,
    model: Model = None,
    out: Annotated[Path | None, typer.Option(help="The folder; without it: a new one under runs/.")] = None,
    device: Device = None,
    engine: Engine = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Train with several k and seeds, and say which k the data supports; the same --out again goes on.

    The k of the job itself is not used.
    """
    from ifca.runs.units.choice import parse_range

    numbers = parse_range(ks)
    config = read_job(job, label, client, preset, settings, model, device, engine, trust=trust)
    from rich.console import Console

    from ifca.report.terminal.progress_bar import watching
    from ifca.runs.choose_k import choose_k
    from ifca.runs.run_folder import next_directory

    folder = out or next_directory(config, verb="choose-k")
    console = Console(stderr=as_json)

    def told(done_in: Path, done: int, of: int) -> None:
        console.print(f"trained {done_in} ({done} of {of})", soft_wrap=True, highlight=False, markup=False)

    try:
        with watching(console, plain=quiet or not console.is_terminal) as progress:
            found = choose_k(config, numbers, seeds, folder, progress, workers, told)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the same command with --out {folder} goes on") from None
    from ifca.report.choose_k_figure import write_choice_figure
    from ifca.report.terminal.run_tables import choice_table

    figure = write_choice_figure(folder, found)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    console = console if console.is_terminal else Console(width=140)
    console.print(choice_table(found))
    for line in (found["because"], f"figure: {figure}", f"folder: {folder}"):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
