"""The verbs for a run whose clients' data have changed: check, continue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ifca.cli.options import Json, Out, Owner, Quiet, RunFolder, Settings, Track, Trust, check_there

NewData = Annotated[
    Path, typer.Option("--data", help="New data of its clients: a folder of files, or one table.")
]


def check_command(
    directory: RunFolder,
    data: NewData,
    owner: Owner = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Do a run's models still fit its clients? Who moved, whom no model fits; alarms with their evidence."""
    check_there(directory)
    from ifca.runs.drift_words import report_lines
    from ifca.use.continue_run import check_run

    found = check_run(directory, data, client=owner, trust=trust)
    typer.echo(json.dumps(found) if as_json else "\n".join(report_lines(found)))


def continue_command(
    directory: RunFolder,
    data: NewData,
    owner: Owner = None,
    settings: Settings = None,
    out: Out = None,
    quiet: Quiet = False,
    track: Track = None,
    trust: Trust = False,
) -> None:
    """Train on from a run's models with new data of its clients; the run itself stays as it is."""
    check_there(directory)
    from ifca.report.terminal.show import watched
    from ifca.runs.drift_words import report_lines
    from ifca.runs.run_folder import next_directory, open_directory
    from ifca.use.continue_run import continue_run

    folder = out or next_directory(open_directory(directory), verb="continued")

    def train(told: object) -> None:
        continue_run(
            directory,
            data,
            folder,
            told,
            settings=settings,
            client=owner,
            trust=trust,
            told=lambda found: typer.echo("\n".join(report_lines(found))),
        )

    watched(train, folder, quiet, track)
    say_what_it_brought(folder)


def say_what_it_brought(folder: Path) -> None:
    """After a run that continued another: which models are new, and how clients are served now."""
    from ifca.runs.clients_table import read_clients
    from ifca.runs.drift_words import compared_lines, new_models
    from ifca.runs.summary_file import read_summary

    summary = read_summary(folder)
    clusters = {row["id"]: int(row["cluster"]) for row in read_clients(folder)}
    for line in (*new_models(summary, clusters), *compared_lines(summary["continued"])):
        typer.echo(line)
