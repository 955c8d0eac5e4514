"""The command line: verbs; each calls one function. Wrong input is one sentence and exit code 2."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ifca import __version__
from ifca.bench.speed import JOBS, Elsewhere, bench
from ifca.cli.choosing import choose_k_command
from ifca.cli.federating import app as federate_app
from ifca.cli.inspecting import inspect_command
from ifca.cli.public_data import app as data_app
from ifca.cli.reproducing import reproduce_command
from ifca.cli.seeing import report_command, watch_command
from ifca.cli.starting import init_command
from ifca.cli.using import Trust, assign_command, export_command, predict_command
from ifca.core.callbacks import Several
from ifca.core.errors import IFCAError, Interrupted
from ifca.report.terminal.run_tables import bench_table
from ifca.report.terminal.show import watched
from ifca.runs.config import Config, read_config, with_model
from ifca.runs.run import resume as resume_run
from ifca.runs.run import run as run_config
from ifca.runs.run_folder import next_directory
from ifca.runs.track.trackers import trackers
from ifca.training import choose_device

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(data_app, name="data")
app.command("choose-k")(choose_k_command)
app.command("report")(report_command)
app.command("watch")(watch_command)
app.add_typer(federate_app, name="federate")
app.command("reproduce")(reproduce_command)
app.command("init")(init_command)
app.command("assign")(assign_command)
app.command("predict")(predict_command)
app.command("export")(export_command)
data_app.command("inspect")(inspect_command)

ConfigFile = Annotated[Path | None, typer.Argument(help="A TOML file; without it: the default job.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, over the config's; repeatable.")
]
Out = Annotated[Path | None, typer.Option(help="The run's folder; without it: a new one under runs/.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
EngineOption = Annotated[str | None, typer.Option(help="loop or vectorised.")]
Model = Annotated[str | None, typer.Option(help="A built-in model, or module:function of your own.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Plain lines instead of a progress bar.")]
Track = Annotated[
    list[str] | None, typer.Option("--track", help="Also tell tensorboard or mlflow; repeatable.")
]


@app.command()
def run(
    config: ConfigFile = None,
    settings: Settings = None,
    out: Out = None,
    model: Model = None,
    device: Device = None,
    engine: EngineOption = None,
    quiet: Quiet = False,
    track: Track = None,
) -> None:
    """Train a job and write its folder."""
    chosen = read_config(config, with_model(settings, model), device=device, engine=engine)
    _train(chosen, out, quiet, track)


@app.command()
def compare(
    config: ConfigFile = None,
    settings: Settings = None,
    out: Out = None,
    model: Model = None,
    device: Device = None,
    engine: EngineOption = None,
    quiet: Quiet = False,
    track: Track = None,
) -> None:
    """Train a job and all the other algorithms on the same data, side by side."""
    everything = [
        *(with_model(settings, model) or []),
        'baselines = ["ifca", "ifca-plain", "global", "local", "oneshot"]',
    ]
    _train(read_config(config, everything, device=device, engine=engine), out, quiet, track)


@app.command()
def resume(directory: Path, quiet: Quiet = False, track: Track = None, trust: Trust = False) -> None:
    """Go on with a run that was interrupted; the result is as if it had not been."""
    tracker = trackers(track, directory)
    watched(lambda bars: resume_run(directory, Several([bars, *tracker]), trust), directory, quiet)


@app.command("bench")
def bench_command(
    job: Annotated[str, typer.Argument(help=f"One of: {', '.join(JOBS)}.")] = "mnist-4800",
    scale: Annotated[float, typer.Option(help="Share of the job's clients (synthetic: of its runs).")] = 1.0,
    rounds: Annotated[int, typer.Option(help="Best of so many rounds, on a CPU.")] = 1,
    device: Device = None,
    engines: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a list of rows.")] = False,
) -> None:
    """Time the engines on the same job in one run, beside the machine's matrix product rate."""
    chosen = tuple(engines.split(",")) if engines else ()
    rows = []
    where = choose_device(device or "auto")
    for row in bench(job, scale=scale, rounds=rounds, device=where, engines=chosen, flower=_flower()):
        rows.append(row)
        if not as_json:
            typer.echo(f"measured {row['engine']}: {row['seconds_per_round']:.4f} s a round")
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(bench_table(rows))


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Clustered federated learning: IFCA, its baselines, its experiments."""
    if show:
        typer.echo(f"ifca {__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point: errors meant for the user end as one sentence."""
    try:
        if app(standalone_mode=False) == Interrupted.code:  # typer's answer to ctrl-C
            raise KeyboardInterrupt
    except (typer.Exit, SystemExit) as done:
        sys.exit(getattr(done, "exit_code", getattr(done, "code", 0)))
    except IFCAError as error:
        _fail(str(error), error.code)
    except OSError as error:
        _fail(f"{error.filename or 'output'}: {error.strerror or error}; nothing that was saved is lost", 1)
    except KeyboardInterrupt:
        _fail("interrupted; 'ifca resume' goes on from the last checkpoint", Interrupted.code)
    except Exception as error:
        if hasattr(error, "format_message"):  # a wrong option or argument
            _fail(str(error.format_message()), 2)
        raise


def _fail(message: str, code: int) -> None:
    if message:
        typer.echo("error: " + " ".join(message.split()), err=True)
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if code == Interrupted.code and not all(thread.daemon for thread in others):
        sys.stdout.flush()
        os._exit(code)  # a thread of Flower's may wait for Ray for ever, and Python for that thread
    sys.exit(code)


def _flower() -> Elsewhere | None:
    if importlib.util.find_spec("flwr") is None:
        return None
    from ifca.federation.timing import flower_seconds

    return flower_seconds


def _train(config: Config, out: Path | None, quiet: bool, track: list[str] | None) -> None:
    folder = out or next_directory(config)
    tracker = trackers(track, folder)
    watched(lambda bars: run_config(config, folder, Several([bars, *tracker])), folder, quiet)
