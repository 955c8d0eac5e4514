"""The verb 'ifca tune'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ifca.cli.options import Client, Device, Engine, Job, Json, Label, Model, Preset, Quiet, Settings, Trust
from ifca.cli.running import read_job
from ifca.core.errors import Interrupted, InvalidInput


def tune_command(
    job: Job = None,
    label: Label = None,
    client: Client = None,
    preset: Preset = None,
    steps: Annotated[str | None, typer.Option("--step-size", help="Step sizes to try: 0.03,0.1,0.3.")] = None,
    local: Annotated[str | None, typer.Option("--local-steps", help="Local steps to try: 5,10.")] = None,
    hidden: Annotated[str | None, typer.Option(help="Widths of one hidden layer to try: 50,200.")] = None,
    ks: Annotated[str | None, typer.Option("--k", help="Numbers of clusters to try: 2,4,auto.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of the first level; each one after it has twice.")] = 10,
    settings: Settings = None,
    model: Model = None,
    out: Annotated[Path | None, typer.Option(help="The folder; without it: a new one under runs/.")] = None,
    device: Device = None,
    engine: Engine = None,
    quiet: Quiet = False,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Try settings, judged by samples that clients set aside; the same command with --out goes on."""
    config = read_job(job, label, client, preset, settings, model, device, engine, trust=trust)
    given = {
        "step_size": _numbers("--step-size", steps, float),
        "local_steps": _numbers("--local-steps", local, int),
        "hidden": _numbers("--hidden", hidden, int),
        "k": _numbers("--k", ks, int, "auto"),
    }
    values = {name: some for name, some in given.items() if some}
    from rich.console import Console

    from ifca.report.terminal.progress_bar import watching
    from ifca.runs.run_folder import next_directory
    from ifca.runs.tune_run import TUNED, tune_run

    folder = out or next_directory(config, verb="tune")
    console = Console(stderr=as_json)
    try:
        with watching(console, plain=quiet or not console.is_terminal) as progress:
            found = tune_run(config, folder, values or None, rounds, progress)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the same command with --out {folder} goes on") from None
    from ifca.report.terminal.tune_table import tune_table

    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    console = console if console.is_terminal else Console(width=140)
    console.print(tune_table(found))
    for line in (found["because"], f"config: {folder / TUNED} ('ifca run {folder / TUNED}' trains it)"):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _numbers(option: str, text: str | None, kind: type, word: str | None = None) -> list[Any]:
    """Numbers with commas between them; word: what may stand for one."""
    parts = [part.strip() for part in text.split(",")] if text else []
    try:
        return [part if part == word else kind(part) for part in parts]
    except ValueError:
        wanted = "whole numbers" if kind is int else "numbers"
        raise InvalidInput(f"{option} {text}: expected {wanted} with commas between them") from None
