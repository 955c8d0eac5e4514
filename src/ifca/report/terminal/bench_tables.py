"""What 'ifca bench' measured, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from ifca.report.terminal.run_tables import plain_table

Row = dict[str, Any]


def bench_table(rows: list[dict[str, Any]]) -> Table:
    """The engines of a bench, side by side."""
    head = rows[0] if rows else {"job": "", "scale": 1, "gemm_gflops": 0, "device": ""}
    rate = f"{head['gemm_gflops']:,.0f} GFLOP/s float32 products"
    table = plain_table(f"{head['job']} at scale {head['scale']:g} on {head['device']} ({rate})")
    table.add_column("engine")
    for name in (
        "seconds\na round",
        "times the\nloop's speed",
        "GFLOP/s",
        "share of\nproduct rate",
        "peak MiB",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        ratio = row["ratio_to_loop"]
        table.add_row(
            row["engine"],
            f"{row['seconds_per_round']:.4g}",
            "–" if ratio is None else f"{ratio:.2f}",
            f"{row['gflops']:,.0f}",
            f"{row['fraction_of_gemm_peak']:.2f}",
            f"{row['peak_memory_mib']:,.0f}",
        )
    return table


def shapes_table(rows: list[Row]) -> Table:
    """One shape: its contestants side by side."""
    head = rows[0]
    size = f"{head['clients']} clients, {head['samples']} samples"
    table = plain_table(
        f"{head['shape']}: {head['about']} ({size}; {head['device']}, load {head['load']:.1f})"
    )
    for name in ("contestant", "path"):
        table.add_column(name)
    for name in (
        "seconds\na round",
        "best",
        "first\nround",
        "times the\nloop's speed",
        "times\nplain's time",
        "share of\nproduct rate",
        "share of\nmemory rate",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        seconds = (row[name] for name in ("seconds_per_round", "best_seconds", "first_round_seconds"))
        numbers = (row[name] for name in ("ratio_to_loop", "times_plain", "product_share", "memory_share"))
        table.add_row(
            row["contestant"],
            row["path"],
            *(f"{value:.4g}" for value in seconds),
            *("–" if value is None else f"{value:.2f}" for value in numbers),
        )
    return table


def covered_sentences(rows: list[Row]) -> Iterator[str]:
    """Why a shape's own method is not served by the exact path, and why not by kernels."""
    found = rows[-1]["not_covered"]
    if found["exact"]:
        yield f"the exact path does not cover: {', '.join(found['exact'])}"
    more = [reason for reason in found["kernels"] if reason not in found["exact"]]
    if more:
        yield f"kernels do not serve it: {', '.join(more)}"
