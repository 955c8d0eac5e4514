"""The verbs 'ifca bench' and 'ifca bench-methods'."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifca.cli.options import DataDir, Device, Workers
from ifca.core.errors import InvalidInput

if TYPE_CHECKING:
    from ifca.bench.speed import Elsewhere

JOBS = "mnist-4800, mnist-2400, mnist-1200, cifar, synthetic-k2, synthetic-k4"
SHAPES = "paper, uneven, float, table, partial, deep, tiny, minibatch, momentum, local, images"
Commas = Annotated[str | None, typer.Option(help="Only these, comma-separated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, a list of rows.")]


def bench_command(
    job: Annotated[str | None, typer.Argument(help=f"One of: {JOBS}; without it mnist-4800.")] = None,
    shape: Annotated[
        str | None, typer.Option(help=f"In place of the job a shape of users' data: {SHAPES}; or all.")
    ] = None,
    scale: Annotated[float, typer.Option(help="Share of the job's clients (synthetic: of its runs).")] = 1.0,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds: the best of 1 on a CPU; of a shape the median of 5.")
    ] = None,
    device: Device = None,
    engines: Commas = None,
    not_covered: Annotated[
        bool, typer.Option("--not-covered", help="Only list what the exact fast path does not cover.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Time the engines on the same job in one run, beside the machine's matrix product rate."""
    if not_covered:
        _print_not_covered()
        return
    chosen = tuple(engines.split(",")) if engines else ()
    if shape is not None and job is not None:
        raise InvalidInput(f"either a job ({job}) or --shape {shape}")
    job = job or "mnist-4800"
    _known("job", job, f"{JOBS}")
    if shape is not None:
        _bench_shapes(shape, scale, rounds or 5, device, chosen, as_json)
        return
    from rich.console import Console

    from ifca.bench.speed import bench
    from ifca.report.terminal.bench_tables import bench_table
    from ifca.training import choose_device

    rows, where = [], choose_device(device or "auto")
    for row in bench(job, scale=scale, rounds=rounds or 1, device=where, engines=chosen, flower=_flower()):
        rows.append(row)
        if not as_json:
            typer.echo(f"measured {row['engine']}: {row['seconds_per_round']:.4f} s a round")
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(bench_table(rows))


def _bench_shapes(
    name: str, scale: float, rounds: int, device: str | None, chosen: tuple[str, ...], as_json: bool
) -> None:
    """Rows of one shape, or of all; and why a path does not cover it."""
    names = (SHAPES if name == "all" else name).split(",")
    names = [part.strip() for part in names]
    for one in names:
        _known("shape", one, SHAPES)
    from rich.console import Console

    from ifca.bench.users import bench_shape
    from ifca.report.terminal.bench_tables import covered_sentences, shapes_table
    from ifca.training import choose_device

    where, rows = choose_device(device or "auto"), []
    console = Console(width=None if sys.stdout.isatty() else 140, stderr=as_json)
    for one in names:
        found = bench_shape(one, scale=scale, device=where, rounds=rounds, contestants=chosen)
        rows += found
        console.print(shapes_table(found))
        for sentence in covered_sentences(found):
            console.print(sentence, soft_wrap=True, highlight=False)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))


def _known(kind: str, name: str, names: str) -> None:
    """Refuse a name before anything heavy is imported."""
    if name not in names.split(", "):
        raise InvalidInput(f"unknown {kind} {name} (known: {names})")


def _print_not_covered() -> None:
    from ifca.engines.covered import not_covered

    for path, reasons in not_covered().items():
        typer.echo(f"{path}: does not cover")
        for reason in reasons:
            typer.echo(f"  {reason}")


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
    workers: Workers = None,
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
    choice = Choice(*names, chosen_seeds(seeds), device or "auto", workers, time_limit)
    if not no_run:
        with watching_units(Console(), NAME, Estimate()) as on_line, resumable():
            left_out = bench_methods(out, choice, on_line)
    folder = out / NAME
    summary = write_standings(folder)
    files = [folder / SUMMARY, write_methods_table(folder, summary), *write_methods_figure(folder, summary)]
    for one in summary["behind"]:
        typer.echo(f"{one['regime']}: ifca is {one['behind']:+.2f} points behind {one['best']}")
    typer.echo("written: " + ", ".join(str(file) for file in files))
    for sentence in left_out:
        typer.echo(f"left out: {sentence}", err=True)
