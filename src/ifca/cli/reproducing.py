"""The verb 'ifca reproduce'."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifca.cli.options import DataDir, Workers
from ifca.core.errors import InvalidInput
from ifca.paper.experiments import MODULES, experiment

if TYPE_CHECKING:
    from ifca.paper.reproduce import Choice


def reproduce_command(
    name: Annotated[str, typer.Argument(help=f"{', '.join(MODULES)}; all; docs: write docs/results.md.")],
    quick: Annotated[bool, typer.Option("--quick", help="Scaled down: minutes on two cores.")] = False,
    out: Annotated[Path, typer.Option(help="Results go to OUT/NAME; of quick runs OUT/quick/NAME.")] = Path(
        "results"
    ),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Workers = None,
    seeds: Annotated[str | None, typer.Option(help="Only these, first:end.")] = None,
    algorithms: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    settings: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Only report what is there; run nothing.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Run an experiment of the paper: what is not done yet, then its table, figure and summary."""
    from ifca.data.public.places import VARIABLE
    from ifca.paper.reproduce import Choice
    from ifca.runs.units.choice import chosen_names, chosen_seeds

    if data_dir is not None:
        os.environ[VARIABLE] = str(data_dir)  # for the workers too
    if name == "docs":
        from ifca.report.paper.results_page import write_results_page

        typer.echo(f"written: {write_results_page(out, Path('docs'), {n: experiment(n) for n in MODULES})}")
        return
    if no_run and (seeds or algorithms or settings):
        raise InvalidInput(
            "--no-run reports all that is there: --seeds, --algorithms, --settings are for runs"
        )
    picked = chosen_names(algorithms), chosen_names(settings)
    choice = Choice(quick, device, workers, chosen_seeds(seeds), *picked, run=not no_run)
    left_out = _all(out, choice) if name == "all" else _one(name, out, choice)
    for sentence in left_out:
        typer.echo(f"left out: {sentence}", err=True)
    if left_out:
        sys.exit(1)


def _all(out: Path, choice: Choice) -> list[str]:
    """Every experiment, by the same processes."""
    from ifca.runs.units.execute import pool_of

    with pool_of(choice.workers, choice.device) as pool:
        choice = replace(choice, pool=pool)
        return [sentence for one in MODULES for sentence in _one_of_all(one, out, choice)]


def _one_of_all(name: str, out: Path, choice: Choice) -> list[str]:
    """The same, where the others are worth running all the same."""
    try:
        return _one(name, out, choice)
    except InvalidInput as reason:
        return [f"{name}: {str(reason).removeprefix(f'{name}: ')}"]


def _one(name: str, out: Path, choice: Choice) -> list[str]:
    """One experiment, run and reported; what had to be left out, in sentences."""
    from rich.console import Console

    from ifca.paper.reproduce import folder_of, reproduce
    from ifca.paper.summary import SUMMARY, finished
    from ifca.report.terminal.unit_bar import watching_units
    from ifca.runs.units.time_left import Estimate, resumable

    found, folder = experiment(name), folder_of(out, name, choice.quick)
    with watching_units(Console(), name, Estimate()) as on_line, resumable():
        summary, left_out = reproduce(name, out, choice, on_line)
    from ifca.report.paper.paper_figures import write_figure
    from ifca.report.paper.paper_tables import table_of, write_table

    files = [folder / SUMMARY, write_table(folder, summary, found.how(choice.quick))]
    files += write_figure(folder, summary, finished(found, folder, choice.quick))
    typer.echo(f"\n{found.title}\n\n{table_of(summary)}")
    if summary["missing"]:
        typer.echo(f"{summary['missing']} units of this experiment are not run yet")
    typer.echo("written: " + ", ".join(str(file) for file in files))
    return left_out
