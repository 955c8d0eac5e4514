"""The entry point, and every verb in a newcomer's order. Wrong input is one sentence and exit code 2."""

from __future__ import annotations

import io
import os
import sys
import threading
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ifca import __version__
from ifca.cli.attacking import attack_command
from ifca.cli.benching import bench_command, bench_methods_command
from ifca.cli.choosing import choose_k_command
from ifca.cli.continuing import check_command, continue_command
from ifca.cli.federating import app as federate_app
from ifca.cli.launching import check_launch
from ifca.cli.public_data import app as data_app
from ifca.cli.reproducing import reproduce_command
from ifca.cli.running import compare_command, resume_command, run_command
from ifca.cli.seeing import report_command, watch_command
from ifca.cli.starting import init_command, installed, version_command
from ifca.cli.tune_command import tune_command
from ifca.cli.using import assign_command, export_command, predict_command
from ifca.core.errors import IFCAError, Interrupted, one_line

PANELS: dict[str, dict[str, typer.Typer | Callable[..., None]]] = {
    "Train and look": {
        "run": run_command,
        "data": data_app,
        "init": init_command,
        "resume": resume_command,
        "report": report_command,
        "watch": watch_command,
    },
    "Use a run": {
        "predict": predict_command,
        "assign": assign_command,
        "check": check_command,
        "continue": continue_command,
        "export": export_command,
    },
    "Choose": {
        "compare": compare_command,
        "choose-k": choose_k_command,
        "tune": tune_command,
    },
    "Rehearse": {
        "attack": attack_command,
    },
    "Train over a network": {
        "federate": federate_app,
    },
    "Measure and reproduce": {
        "version": version_command,
        "bench": bench_command,
        "bench-methods": bench_methods_command,
        "reproduce": reproduce_command,
    },
}
"""Panel of the help -> name -> the verb, or the group of verbs; in the order of a user's day."""
VERBS = [name for verbs in PANELS.values() for name in verbs]


class InOrder(TyperGroup):
    """Verbs are listed in the order of PANELS; typer lists groups after the others."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names."""
        return sorted(super().list_commands(ctx), key=VERBS.index)


app = typer.Typer(cls=InOrder, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
for panel, verbs in PANELS.items():
    for name, verb in verbs.items():
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(verb)


@app.callback(invoke_without_command=True)
def options(
    show: Annotated[bool, typer.Option("--version", help="Print the versions.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With --version: the device, too.")] = False,
) -> None:
    """Clustered federated learning: groups of clients that are alike are found, each gets a model."""
    if show:
        version_command() if verbose else typer.echo(f"ifca {__version__} ({installed()})")
        raise typer.Exit


def main() -> None:
    """Entry point: errors meant for the user end as one sentence, and so do warnings."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without some letters shows others for them
            stream.reconfigure(errors="replace")
    with warnings.catch_warnings():
        warnings.showwarning = partial(_warn, warnings.showwarning)
        _run()


def _run() -> None:
    try:
        check_launch(sys.argv[1:])
        code = app(prog_name="ifca", standalone_mode=False)
        if code == Interrupted.code:  # typer's answer to ctrl-C
            raise KeyboardInterrupt
        if code:  # that of typer.Exit
            sys.exit(code)
    except (typer.Exit, SystemExit) as done:
        sys.exit(getattr(done, "exit_code", getattr(done, "code", 0)))
    except IFCAError as error:
        _fail(str(error), error.code)
    except OSError as error:
        _fail(f"{error.filename or 'output'}: {error.strerror or error}; nothing that was saved is lost", 1)
    except KeyboardInterrupt:
        _fail("interrupted" + _how_to_go_on(sys.argv[1:]), Interrupted.code)
    except Exception as error:
        if hasattr(error, "format_message"):  # a wrong option or argument
            _fail(_unknown_option(error) or str(error.format_message()), 2)
        raise


def _how_to_go_on(arguments: list[str]) -> str:
    """What to do after ctrl-C, by the command."""
    verb = next((word for word in arguments if not word.startswith("-")), None)
    if verb in ("run", "compare", "resume"):
        return "; 'ifca resume' goes on from the last checkpoint"
    return "; the same command goes on" if verb in ("reproduce", "bench-methods", "choose-k") else ""


def _warn(usual: Callable[..., None], message: Warning | str, category: type[Warning], *more: Any) -> None:
    """A warning of ifca's own in one line; others as Python shows them."""
    if category.__module__.startswith("ifca."):
        typer.echo(f"warning: {one_line(str(message))}", err=True)
    else:
        usual(message, category, *more)


def _unknown_option(error: Any) -> str:
    """What was probably meant; whoever writes --rounds 5 means a key of the config."""
    option = getattr(error, "option_name", None)
    if option is None or not hasattr(error, "possibilities"):
        return ""
    from dataclasses import fields

    from ifca.core.recipe import Recipe

    key = option.lstrip("-").replace("-", "_")
    if key in {field.name for field in fields(Recipe)}:
        after = sys.argv[sys.argv.index(option) + 1 :][:1] if option in sys.argv else []
        value = after[0] if after and not after[0].startswith("-") else "VALUE"
        return f"No such option: {option}; {key} is a key of the config: --set {key}={value}"
    near = get_close_matches(option, error.possibilities or [], 1)
    return f"No such option: {option}" + (f"; did you mean {near[0]}?" if near else "")


def _fail(message: str, code: int) -> None:
    if message:
        typer.echo(f"error: {one_line(message)}", err=True)
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if code == Interrupted.code and not all(thread.daemon for thread in others):
        sys.stdout.flush()
        os._exit(code)  # a thread of Flower's may wait for Ray for ever, and Python for that thread
    sys.exit(code)
