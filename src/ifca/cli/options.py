"""Options and arguments that several verbs have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ifca.core.errors import InvalidInput


def check_there(*folders: Path) -> None:
    """Refuse a run's folder that is not there, before anything heavy is imported."""
    for folder in folders:
        if not folder.is_dir():
            raise InvalidInput(f"{folder}: no such run folder")


ConfigFile = Annotated[Path | None, typer.Argument(help="A TOML file; without it: the default job.")]
Job = Annotated[
    Path | None,
    typer.Argument(help="A TOML file, a table or a folder of tables; without it: the default job."),
]
Label = Annotated[
    list[str] | None, typer.Option(help="Of a table or a folder of tables: the column to predict.")
]
Client = Annotated[str | None, typer.Option(help="Of a table: the column that says whose a row is.")]
Owner = Annotated[
    str | None, typer.Option("--client", help="Of a table: the column that says whose a row is.")
]
Preset = Annotated[str | None, typer.Option(help="A ready-made job; 'ifca run --list' lists them.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, over the config's; repeatable.")
]
Out = Annotated[Path | None, typer.Option(help="The run's folder; without it: a new one under runs/.")]
Model = Annotated[str | None, typer.Option(help="A built-in model, or module:function of your own.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
Engine = Annotated[str | None, typer.Option(help="loop or vectorised.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Plain lines instead of a progress bar.")]
Track = Annotated[
    list[str] | None, typer.Option("--track", help="Also tell tensorboard or mlflow; repeatable.")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run code of a run folder that you did not make here, or of a config.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "--processes",
        help="Processes, each on a GPU of its own in turn; without it: one per GPU.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunFolder = Annotated[Path, typer.Argument(help="The folder of a finished run.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="The data folder; without it: IFCA_DATA, then the cache.")
]
