"""The verb 'ifca bench'."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ifca.cli.options import Device

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
