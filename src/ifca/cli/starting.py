"""The verbs 'ifca init' and 'ifca version'."""

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


def installed() -> str:
    """Python's and torch's version; torch is not imported for it, which takes seconds."""
    import platform
    from importlib.metadata import version

    return f"Python {platform.python_version()}, torch {version('torch')}"


def version_command() -> None:
    """Print the versions of ifca, Python and torch, and the device that trains."""
    import platform

    import torch

    from ifca import __version__
    from ifca.training import choose_device

    device = choose_device("auto")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    typer.echo(f"ifca {__version__}")
    typer.echo(f"Python {platform.python_version()} on {platform.system()}")
    typer.echo(f"torch {torch.__version__}")
    typer.echo(f"device {device.type} ({name})")
