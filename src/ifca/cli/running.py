"""The verbs that train: run, compare, resume."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ifca.cli.options import ConfigFile, Device, Engine, Model, Out, Quiet, Settings, Track, Trust

if TYPE_CHECKING:
    from ifca.runs.config import Config


def run_command(
    config: ConfigFile = None,
    settings: Settings = None,
    out: Out = None,
    model: Model = None,
    device: Device = None,
    engine: Engine = None,
    quiet: Quiet = False,
    track: Track = None,
) -> None:
    """Train a job and write its folder."""
    from ifca.runs.config import read_config, with_model

    chosen = read_config(config, with_model(settings, model), device=device, engine=engine)
    _train(chosen, out, quiet, track)


def compare_command(
    config: ConfigFile = None,
    settings: Settings = None,
    out: Out = None,
    model: Model = None,
    device: Device = None,
    engine: Engine = None,
    quiet: Quiet = False,
    track: Track = None,
) -> None:
    """Train a job and all the other algorithms on the same data, side by side."""
    from ifca.runs.config import read_config, with_model

    chosen = read_config(config, with_model(settings, model), device=device, engine=engine)
    _train(chosen, out, quiet, track, others=True)


def resume_command(directory: Path, quiet: Quiet = False, track: Track = None, trust: Trust = False) -> None:
    """Go on with a run that was interrupted; the result is as if it had not been."""
    from ifca.report.terminal.show import watched
    from ifca.runs.run import resume

    watched(lambda told: resume(directory, told, trust), directory, quiet, track)


def _train(
    config: Config, out: Path | None, quiet: bool, track: list[str] | None, *, others: bool = False
) -> None:
    from ifca.report.terminal.show import watched
    from ifca.runs.run import compare, run
    from ifca.runs.run_folder import next_directory

    folder, train = out or next_directory(config), compare if others else run
    watched(lambda told: train(config, folder, told), folder, quiet, track)
