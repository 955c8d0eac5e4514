"""The verbs 'ifca bench' and 'ifca bench-methods'."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifca.cli.options import DataDir, Device

if TYPE_CHECKING:
    from ifca.bench.speed import Elsewhere

JOBS = "mnist-4800, mnist-2400, mnist-1200, cifar, synthetic-k2, synthetic-k4"


def bench_command(
    job: Annotated[str, typer.Argument(help=f"One of: {JOBS}.")] = "mnist-4800",
    scale: Annotated[float, typer.Option(help="Share of the job's clients (synthetic: of its runs).")] = 1.0,
    rounds: Annotated[int, typer.Option(help="Best of so many rounds, on a CPU.")] = 1,
    device: Device = None,
    engines: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a list of rows.")] = False,
) -> None:
    """Time the engines on the same job in one run, beside the machine's matrix product rate."""
    from rich.console import Console

    from ifca.bench.speed import bench
    from ifca.report.terminal.run_tables import bench_table
    from ifca.training import choose_device

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


def _flower() -> Elsewhere | None:
    """Flower's time, where it is installed: bench does not know federations."""
    if importlib.util.find_spec("flwr") is None:
        return None
    from ifca.federation.timing import flower_seconds

    return flower_seconds


def bench_methods_command(
    regime: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    method: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    seeds: Annotated[str | None, typer.Option(help="first:end; the table is of 0:10.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Minutes after which no unit is begun; the same command goes on.")
    ] = None,
    processes: Annotated[int, typer.Option(help="Units at a time, each with one thread.")] = 1,
    out: Annotated[Path, typer.Option(help="Results go to OUT/methods.")] = Path("results"),
    device: Device = None,
    data_dir: DataDir = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Only report what is there; run nothing.")] = False,
) -> None:
    """Compare methods on many kinds of federations: what is not done yet, then summary, table and picture."""
    from rich.console import Console

    from ifca.bench.methods import NAME, Choice, bench_methods
    from ifca.bench.standings import SUMMARY, write_standings
    from ifca.data.public.places import VARIABLE
    from ifca.report.methods_figure import write_methods_figure
    from ifca.report.methods_table import write_methods_table
    from ifca.report.terminal.unit_bar import watching_units
    from ifca.runs.units.choice import chosen_names, chosen_seeds
    from ifca.runs.units.time_left import Estimate, resumable

    if data_dir is not None:
        os.environ[VARIABLE] = str(data_dir)  # for other processes too
    names, left_out = (chosen_names(regime), chosen_names(method)), list[str]()
    choice = Choice(*names, chosen_seeds(seeds), device or "auto", processes, time_limit)
    if not no_run:
        with watching_units(Console(), NAME, Estimate(processes)) as on_line, resumable():
            left_out = bench_methods(out, choice, on_line)
    folder = out / NAME
    summary = write_standings(folder)
    files = [folder / SUMMARY, write_methods_table(folder, summary), *write_methods_figure(folder, summary)]
    for one in summary["behind"]:
        typer.echo(f"{one['regime']}: ifca is {one['behind']:+.2f} points behind {one['best']}")
    typer.echo("written: " + ", ".join(str(file) for file in files))
    for sentence in left_out:
        typer.echo(f"left out: {sentence}", err=True)
