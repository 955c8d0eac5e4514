"""The verbs that put a finished run to use: assign, predict, export."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ifca.cli.options import Json, Owner, RunFolder, Trust, check_there


def assign_command(
    directory: RunFolder,
    client: Annotated[
        Path, typer.Argument(help="A client's file (.npz, .csv, .parquet), or a folder of them.")
    ],
    owner: Owner = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Which cluster a client is in, by its loss under each of the run's models; and does any model fit it."""
    check_there(directory)
    from rich.console import Console

    from ifca.report.terminal.use_tables import assignments_table
    from ifca.report.terminal.use_words import assignment_lines
    from ifca.runs.drift_words import how_sure, without_labels
    from ifca.use.assign import assign_clients

    found = assign_clients(directory, client, trust, owner)
    if as_json:
        typer.echo(json.dumps(found if client.is_dir() or len(found) > 1 else found[0]))
        return
    labelled = [one for one in found if "losses" in one]
    without = [one for one in found if "losses" not in one]
    if len(labelled) > 1:
        console = Console(width=None if sys.stdout.isatty() else 120)
        console.print(assignments_table(labelled))
    elif labelled:
        typer.echo("\n".join(assignment_lines(labelled[0])))
    if without:
        typer.echo("\n".join([*map(without_labels, without), *how_sure(without)]))
    for one in labelled:
        for warning in one["warnings"]:
            typer.echo(f"warning: {one['client']}: {warning}", err=True)


def predict_command(
    directory: RunFolder,
    client: Annotated[
        Path,
        typer.Argument(
            help="A client's file (.npz with x, .csv or .parquet), a folder of them, or a table of several "
            "clients; labels optional."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Write a row per sample here (CSV).")] = None,
    cluster: Annotated[
        int | None,
        typer.Option(help="The model; without it: the best by the labels, or that of the run's client."),
    ] = None,
    owner: Owner = None,
    personalise: Annotated[
        bool,
        typer.Option(
            "--personalise", help="Let held-out samples choose: this model, or one tuned to the client."
        ),
    ] = False,
    steps: Annotated[
        int | None, typer.Option(help="Try only so many tuning steps; without it: 5 to 160.")
    ] = None,
    step_size: Annotated[float | None, typer.Option(help="Of tuning; without it: the run's.")] = None,
    seed: Annotated[int, typer.Option(help="Of the parts that are held out.")] = 0,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Predict clients' samples with the model of their cluster, or with one of their own (--personalise).

    Clients of a run with a personal method are served by the models that they have.
    """
    check_there(directory)
    from ifca.data.files import refuse_to_overwrite, write_atomically
    from ifca.report.terminal.use_words import first_rows, prediction_lines
    from ifca.use.personal import Tuning
    from ifca.use.predict import predict_clients, table_of

    if out is not None:
        refuse_to_overwrite(out, "--out", run=directory, data=client)
    tuning = Tuning(steps, step_size, seed) if personalise else None
    found = predict_clients(directory, client, cluster, tuning, trust, owner)
    if out is not None:
        write_atomically(out, table_of(found).encode())
    told = [
        {"client": one.client, "cluster": None if one.own else one.cluster, "samples": len(one.outputs)}
        | one.report
        | {"warnings": one.warnings, "out": None if out is None else str(out)}
        for one in found
    ]
    if as_json:
        typer.echo(json.dumps(told if len(told) > 1 else told[0]))
        return
    for one in found:
        for warning in one.warnings:
            typer.echo(f"warning: {one.client}: {warning}", err=True)
    for line in prediction_lines(told):
        typer.echo(line)
    if out is None:
        typer.echo("\n".join(first_rows(table_of(found))))
    else:
        typer.echo(f"predictions: {out}")


def export_command(
    directory: RunFolder,
    cluster: Annotated[int, typer.Option(help="Which of the run's models.")],
    to: Annotated[Path, typer.Option(help="model.pt, model.safetensors or model.onnx.")],
    trust: Trust = False,
) -> None:
    """Write one cluster's model for other programs, with a model card beside it."""
    check_there(directory)
    from ifca.use.card import agreement, card_summary, write_card
    from ifca.use.export import export_model

    card_summary(directory, cluster)  # before a file is written
    checked = export_model(directory, cluster, to, trust)
    card = write_card(directory, cluster, to, checked, trust)
    typer.echo(f"model: {to} (read back by {checked['reader']}: outputs agree {agreement(checked['error'])})")
    typer.echo(f"model card: {card}")
