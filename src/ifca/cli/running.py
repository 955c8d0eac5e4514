"""The verbs that train: run, compare, resume."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifca.cli.launching import among_ranks
from ifca.cli.options import (
    Client,
    Device,
    Engine,
    Job,
    Label,
    Model,
    Out,
    Preset,
    Quiet,
    Settings,
    Track,
    Trust,
    Workers,
    check_there,
)

if TYPE_CHECKING:
    from ifca.runs.config import Config


def run_command(
    job: Job = None,
    label: Label = None,
    client: Client = None,
    preset: Preset = None,
    list_presets: Annotated[bool, typer.Option("--list", help="List the ready-made jobs.")] = False,
    settings: Settings = None,
    out: Out = None,
    model: Model = None,
    device: Device = None,
    engine: Engine = None,
    workers: Workers = None,
    quiet: Quiet = False,
    track: Track = None,
    trust: Trust = False,
) -> None:
    """Train a job and write its folder. --workers: of restarts."""
    if list_presets:
        _list_presets()
        return
    with among_ranks() as leads:
        if not leads:
            return
        config = read_job(job, label, client, preset, settings, model, device, engine, trust=trust)
        from ifca.report.terminal.show import watched
        from ifca.runs.run import run
        from ifca.runs.run_folder import next_directory

        folder = out or next_directory(config)
        watched(lambda told: run(config, folder, told, workers), folder, quiet, track)


def compare_command(
    job: Job = None,
    label: Label = None,
    client: Client = None,
    preset: Preset = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(help="Methods, such as ifca,global,local; also module:NAME of your own. Default: all."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Trainings of each method, each by a seed of its own.")] = 1,
    settings: Settings = None,
    out: Out = None,
    model: Model = None,
    device: Device = None,
    engine: Engine = None,
    workers: Workers = None,
    quiet: Quiet = False,
    track: Track = None,
    trust: Trust = False,
) -> None:
    """Train several methods on the same data, and say which is best, by how much and how sure that is.

    --workers: of seeds.
    """
    with among_ranks() as leads:
        if not leads:
            return
        from ifca.runs.chosen_methods import method_list

        names = None if methods is None else method_list(methods)
        given = (job, label, client, preset, settings, model, device, engine)
        chosen = read_job(*given, trust=trust, baselines=names)
        from ifca.report.terminal.show import watched
        from ifca.runs.run import compare
        from ifca.runs.run_folder import next_directory

        folder = out or next_directory(chosen, verb="compare")
        watched(lambda told: compare(chosen, folder, told, names, seeds, workers), folder, quiet, track)


def resume_command(
    directory: Annotated[Path, typer.Argument(help="The folder of a run.")],
    quiet: Quiet = False,
    track: Track = None,
    trust: Trust = False,
) -> None:
    """Go on with a run that was interrupted; the result is as if it had not been."""
    with among_ranks() as leads:
        if not leads:
            return
        check_there(directory)
        from ifca.report.terminal.show import watched
        from ifca.runs.run import resume
        from ifca.runs.run_folder import PRIVATE

        if (directory / PRIVATE).is_dir():
            from ifca.federation import resuming

            if resuming.was_started(directory):
                again = partial(resuming.resume, directory, say=typer.echo, trust=trust)
                watched(lambda told: again(callback=told), directory, quiet, track)
                return
        watched(lambda told: resume(directory, told, trust), directory, quiet, track)


def read_job(
    job: Path | None,
    label: list[str] | None,
    client: str | None,
    preset: str | None,
    settings: list[str] | None,
    model: str | None,
    device: str | None,
    engine: str | None,
    *,
    trust: bool = False,
    **overrides: object,
) -> Config:
    """The config that the options of run, compare, choose-k and tune come to; it says whose code will run."""
    from ifca.runs.chosen_job import chosen_job
    from ifca.runs.given_code import code_sentence
    from ifca.runs.settings import with_model

    columns, given = {"label": label, "client": client}, with_model(settings, model)
    config = chosen_job(job, columns, preset, given, trust=trust, device=device, engine=engine, **overrides)
    if (sentence := code_sentence(config)) is not None:
        typer.echo(sentence, err=True)
    return config


def _list_presets() -> None:
    from rich.console import Console
    from rich.table import Table

    from ifca.runs.presets import presets

    table = Table("preset", "what it trains", box=None)
    for name, about in presets().items():
        table.add_row(name, about)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    typer.echo("run one of them: ifca run --preset NAME")
