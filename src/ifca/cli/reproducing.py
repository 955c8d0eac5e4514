"""The verb 'ifca reproduce'."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

from ifca.cli.public_data import DataDir
from ifca.core.errors import Interrupted, InvalidInput
from ifca.data.files import write_atomically
from ifca.data.public.places import VARIABLE
from ifca.paper.choice import chosen_names, chosen_seeds
from ifca.paper.execute import OnLine
from ifca.paper.experiments import MODULES, experiment
from ifca.paper.frame import Line
from ifca.paper.reproduce import Choice, folder_of, reproduce
from ifca.paper.summary import SUMMARY, finished
from ifca.paper.time_left import Estimate
from ifca.report.paper.paper_figures import write_figure
from ifca.report.paper.paper_tables import table_of
from ifca.report.paper.results_page import write_results_page

TABLE = "table.md"


def reproduce_command(
    name: Annotated[str, typer.Argument(help=f"{', '.join(MODULES)}; all; docs: write docs/results.md.")],
    quick: Annotated[bool, typer.Option("--quick", help="Scaled down: minutes on two cores.")] = False,
    out: Annotated[Path, typer.Option(help="Results go to OUT/NAME; of quick runs OUT/quick/NAME.")] = Path(
        "results"
    ),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[int, typer.Option(help="Processes that share the device.")] = 1,
    seeds: Annotated[str | None, typer.Option(help="Only these, first:end.")] = None,
    algorithms: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    settings: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Only report what is there; run nothing.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Run an experiment of the paper: what is not done yet, then its table, figure and summary."""
    if data_dir is not None:
        os.environ[VARIABLE] = str(data_dir)  # for the workers too
    if name == "docs":
        typer.echo(f"written: {write_results_page(out, Path('docs'), {n: experiment(n) for n in MODULES})}")
        return
    if no_run and (seeds or algorithms or settings):
        raise InvalidInput(
            "--no-run reports all that is there: --seeds, --algorithms, --settings are for runs"
        )
    picked = chosen_names(algorithms), chosen_names(settings)
    choice = Choice(quick, device, workers, chosen_seeds(seeds), *picked, run=not no_run)
    if name != "all":
        left_out = _one(name, out, choice)
    else:
        left_out = [sentence for one in MODULES for sentence in _one_of_all(one, out, choice)]
    for sentence in left_out:
        typer.echo(f"left out: {sentence}", err=True)
    if left_out:
        sys.exit(1)


def _one_of_all(name: str, out: Path, choice: Choice) -> list[str]:
    """The same, where the others are worth running all the same."""
    try:
        return _one(name, out, choice)
    except InvalidInput as reason:
        return [f"{name}: {str(reason).removeprefix(f'{name}: ')}"]


def _one(name: str, out: Path, choice: Choice) -> list[str]:
    """One experiment; what had to be left out, in sentences."""
    found, folder = experiment(name), folder_of(out, name, choice.quick)
    with _watching(name, choice.workers) as on_line:
        try:
            summary, left_out = reproduce(name, out, choice, on_line)
        except KeyboardInterrupt:
            raise Interrupted("interrupted; the same command goes on after the last finished unit") from None
    table = table_of(summary)
    how = found.about + (f" Quick: {found.about_quick}." if choice.quick else "")
    write_atomically(folder / TABLE, f"# {found.title}\n\n{how}\n\n{table}".encode())
    files = write_figure(
        folder, summary, [x for x in finished(found, folder, choice.quick) if "diverged" not in x]
    )
    typer.echo(f"\n{found.title}\n\n{table}")
    if summary["missing"]:
        typer.echo(f"{summary['missing']} units of this experiment are not run yet")
    typer.echo("written: " + ", ".join(str(file) for file in [folder / SUMMARY, folder / TABLE, *files]))
    return left_out


@contextmanager
def _watching(name: str, workers: int) -> Iterator[OnLine]:
    """A bar on a terminal, plain lines elsewhere; both with an estimate of the time left."""
    console, estimate = Console(), Estimate(workers)
    if not console.is_terminal:
        yield lambda line, done, of: typer.echo(f"{name}: {estimate.describe(line, done, of)}")
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[said]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    ]
    with Progress(*columns, console=console, expand=True) as progress:
        bar = progress.add_task(name, total=None, left="", said="")

        def told(line: Line, done: int, of: int) -> None:
            left = estimate.left(done, of)
            progress.update(bar, completed=done, total=of, left=left, said=estimate.unit(line))

        yield told
