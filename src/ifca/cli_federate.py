"""The verbs of 'ifca federate': the same jobs on Flower. They need the extra [flower]."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from ifca.core.errors import InvalidInput
from ifca.experiments.config import read_config
from ifca.experiments.directory import next_directory
from ifca.report.show import watched

app = typer.Typer(no_args_is_help=True, help="Train a federation on Flower: simulated, or real.")

ConfigFile = Annotated[Path | None, typer.Argument(help="A TOML file; without it: the default job.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, over the config's; repeatable.")
]
Out = Annotated[Path | None, typer.Option(help="The run's folder; without it: a new one under runs/.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Plain lines instead of a progress bar.")]


@app.callback()
def needs_flower() -> None:
    """Refuse in one sentence where Flower is not installed."""
    if importlib.util.find_spec("flwr") is None:
        raise InvalidInput("'ifca federate' needs Flower: pip install 'ifca[flower]' (Python 3.11 or newer)")


@app.command()
def simulate(
    config: ConfigFile = None,
    settings: Settings = None,
    out: Out = None,
    cpus: Annotated[float, typer.Option(help="CPU cores that one client takes.")] = 1.0,
    gpus: Annotated[float, typer.Option(help="Share of a GPU that one client takes.")] = 0.0,
    ray_address: Annotated[
        str | None, typer.Option(help="An existing Ray cluster, HOST:PORT or auto.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train a job with every client as a node of Flower's simulation; the folder is like any other run's."""
    from ifca.experiments.federation.simulate import simulate as simulate_config

    chosen = read_config(config, settings)
    folder = out or next_directory(chosen)
    watched(
        lambda progress: simulate_config(
            chosen, folder, progress, cpus=cpus, gpus=gpus, ray_address=ray_address
        ),
        folder,
        quiet,
    )
