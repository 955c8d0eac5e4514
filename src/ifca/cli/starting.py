"""The verb 'ifca init'."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init_command(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.")],
) -> None:
    """Write a small commented project (config, model, data) that runs as it stands."""
    from ifca.runs.new_project import write_project

    for file in write_project(folder):
        typer.echo(f"wrote {file}")
    typer.echo(f"now: cd {folder} && ifca run config.toml")
