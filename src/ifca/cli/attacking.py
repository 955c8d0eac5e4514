"""The verb 'ifca attack'."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from ifca.cli.options import Client, Device, Engine, Job, Json, Label, Model, Preset, Settings, Trust
from ifca.cli.running import read_job


def attack_command(
    job: Job = None,
    label: Label = None,
    client: Client = None,
    preset: Preset = None,
    attack: Annotated[str | None, typer.Option(help="Such as sign-flip; default: the config's.")] = None,
    share: Annotated[float | None, typer.Option(help="Of the attacked cluster, or of all clients.")] = None,
    cluster: Annotated[
        int | None, typer.Option(help="The attacked true cluster; default: the first.")
    ] = None,
    clients: Annotated[str | None, typer.Option(help="Ids of attackers, with commas between them.")] = None,
    strength: Annotated[float | None, typer.Option(help="How strong; default: the attack's own.")] = None,
    rules: Annotated[
        str | None, typer.Option(help="Values of aggregation, such as mean,median; default: the usual ones.")
    ] = None,
    settings: Settings = None,
    model: Model = None,
    device: Device = None,
    engine: Engine = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Train without and with an attack of some clients under several rules: what do the honest ones lose?"""
    from rich.console import Console

    from ifca.report.terminal.attack_table import attack_sentence, attack_table
    from ifca.runs.rehearse import rehearse
    from ifca.runs.units.choice import chosen_names

    named = {"name": attack, "share": share, "cluster": cluster, "strength": strength}
    given: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    if clients is not None:
        given["clients"] = chosen_names(clients)
    more = [f"attack.{key}={json.dumps(value)}" for key, value in given.items()]
    config = read_job(
        job, label, client, preset, [*(settings or []), *more], model, device, engine, trust=trust
    )
    if config.attack is None:
        from ifca.core.attacks import KINDS
        from ifca.core.errors import InvalidInput

        raise InvalidInput(f"--attack is missing: one of {', '.join(KINDS)}")

    def say(row: dict[str, Any]) -> None:
        typer.echo(f"trained: {row['rule']}, {row['attack'] or 'no attack'}", err=True)

    found = rehearse(config, config.attack, chosen_names(rules), say)
    if as_json:
        typer.echo(json.dumps(found, indent=2, allow_nan=False))
        return
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(attack_table(found))
    console.print(attack_sentence(found), soft_wrap=True, highlight=False, markup=False)
    attacked = [row for row in found["rows"] if row["attack"]]
    for sentence in dict.fromkeys(sentence for row in attacked for sentence in row["warnings"]):
        console.print(f"warning: {sentence}", soft_wrap=True, highlight=False, markup=False)
