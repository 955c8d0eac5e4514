"""What users add and ask, as tables: metrics of their own, clusters of new clients."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

from ifca.report.read_run import RunFolder
from ifca.report.words import title_of


def metrics_table(run: RunFolder) -> Table:
    """The user's own metrics of the test clients, by algorithm; the paper's rule and the train rule."""
    table = Table(title="Your metrics (test data)", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.title_style = "bold"
    table.add_column("algorithm")
    names = list(run.summary["test_metrics"])
    for name in names:
        table.add_column(f"{name},\npaper's rule", justify="right")
        table.add_column(f"{name},\ntrain rule", justify="right")
    for summary in [run.summary, *[other.summary for other in run.baselines.values()]]:
        both = [summary[key][name] for name in names for key in ("test_metrics", "test_metrics_train_rule")]
        cells = ["–" if value is None else f"{value:.4g}" for value in both]
        table.add_row(title_of(summary), *cells)
    return table


def assignments_table(found: list[dict[str, Any]]) -> Table:
    """A row per client; a mark where something is to be said about it."""
    table = Table(
        title="Clients and their clusters", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False
    )
    table.add_column("client")
    for head in ("samples", "cluster", "loss", "second", "margin", "standard\nerrors", "usual\nup to"):
        table.add_column(head, justify="right")
    table.add_column("")
    for one in found:
        errors = one["margin_in_errors"]
        table.add_row(
            one["client"],
            str(one["samples"]),
            str(one["cluster"]),
            f"{one['losses'][one['cluster']]:.4f}",
            "–" if one["second"] is None else str(one["second"]),
            "–" if one["margin"] is None else f"{one['margin']:.4f}",
            "–" if errors is None else f"{errors:.1f}",
            "–" if one["usual_loss"] is None else f"{one['usual_loss']:.4f}",
            "; ".join("no fit" if text.startswith("no model") else "unsure" for text in one["warnings"]),
        )
    return table
