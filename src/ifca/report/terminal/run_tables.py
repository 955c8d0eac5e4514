"""A run as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.table import Table

from ifca.report.badly_served import badly_served
from ifca.report.read_run import RunFolder
from ifca.report.standings_table import standings_table
from ifca.report.words import size_of, title_of
from ifca.runs.clients_table import CLIENTS

LARGE = 1e5  # from here on numbers are shown by their leading digits
QUALITY = {"auroc": "AUROC", "f1": "F1", "mae": "MAE", "r2": "R2"}
MOST_NAMES = 12  # of a cluster


def comparison_table(run: RunFolder) -> Table:
    """The algorithms side by side; accuracy by both rules, in regression the test loss instead.

    How many clients are in the right cluster where that is known; else AUROC, in regression R2. Where nobody
    has test data, there are neither.
    """
    summaries = [run.summary, *[other.summary for other in run.baselines.values()]]
    classifies = run.summary["test_accuracy"] is not None
    table = plain_table("Algorithms side by side" + (" (test accuracy in %)" if classifies else ""))
    table.add_column("algorithm")
    loss = "" if classifies else "test\nloss,\n"
    kind, show, main = ("test_accuracy", _percent, "auroc") if classifies else ("test_loss", _number, "r2")
    known = any(summary["cluster_accuracy"] is not None for summary in summaries)
    fourth = "clusters\nright %" if known else QUALITY[main]
    tested = run.summary["test_loss"] is not None
    rules = (f"{loss}paper's\nrule", f"{loss}train\nrule") if tested else ()
    quality_heads = (fourth,) if known or tested else ()
    for head in (*rules, "train\nloss", *quality_heads, "bytes\ndown", "bytes\nup", "seconds"):
        table.add_column(head, justify="right")
    for summary in summaries:
        (quality,) = _quality((summary.get("quality") or {}).get("overall"), (main,))
        table.add_row(
            title_of(summary),
            *((show(summary[kind]), show(summary[kind + "_train_rule"])) if tested else ()),
            _number(summary["train_loss"]),
            *((_percent(summary["cluster_accuracy"]) if known else quality,) if quality_heads else ()),
            size_of(summary["bytes_down"]),
            size_of(summary["bytes_up"]),
            f"{summary['seconds']:.1f}",
        )
    return table


def badly_served_table(run: RunFolder) -> Table | None:
    """The worst tenth of the clients, and those worse off than by a simple method, where known."""
    found = badly_served(run)
    if found is None:
        return None
    title, (_, *heads), rows = found
    table = plain_table(title)
    table.add_column("algorithm")
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def best_method_table(found: dict[str, Any]) -> Table:
    """Methods that were compared, the best first."""
    title, heads, rows = standings_table(found)
    table = plain_table(title)
    for head in heads:
        table.add_column(head, justify="left" if head in ("method", "verdict") else "right")
    for row in rows:
        table.add_row(*row)
    return table


def clusters_table(run: RunFolder) -> Table:
    """The recovered clusters, against the true ones where they are known."""
    true: dict[str, list[int]] = run.summary["true_clusters"] or {}
    table = plain_table("Recovered clusters" + (" against true ones (clients)" if true else ""))
    classifies = run.summary["test_accuracy"] is not None
    judged = (run.summary.get("quality") or {}).get("clusters")
    names = () if judged is None or true else ("auroc", "f1") if classifies else ("mae", "r2")
    tested_head = "test\naccuracy %" if classifies else "test\nloss"
    tested_heads = [tested_head] if run.summary["test_loss"] is not None else []
    for head in ("cluster", "clients", *tested_heads, *(QUALITY[name] for name in names), "train\nloss"):
        table.add_column(head, justify="right")
    for name in true:
        table.add_column(f"true {name}", justify="right")
    for cluster in run.summary["clusters"]:
        counts = [str(row[cluster["cluster"]]) for row in true.values()]
        score = _percent(cluster.get("test_accuracy")) if classifies else _number(cluster.get("test_loss"))
        tested = [score] if tested_heads else []
        who = str(cluster["cluster"]), str(cluster["clients"])
        more = _quality(None if judged is None else judged[cluster["cluster"]], names)
        table.add_row(*who, *tested, *more, _number(cluster["train_loss"]), *counts)
    return table


def member_sentences(run: RunFolder) -> Iterator[str]:
    """Who is in which cluster: the first clients of each by name, and where all of them stand."""
    short = False
    for cluster in run.summary["clusters"]:
        j = cluster["cluster"]
        names = [row["id"] for row in run.clients if row["train_samples"] != "0" and row["cluster"] == str(j)]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES + 1 else ""
        short = short or bool(more)
        if names:
            yield f"cluster {j}: {', '.join(names[: MOST_NAMES if more else None])}{more}"
    if short:
        yield f"all of them: {run.path / CLIENTS}"


def restarts_table(run: RunFolder) -> Table:
    """All restarts; the one kept has the lowest training loss of the clients."""
    restarts: list[dict[str, Any]] = run.summary["restarts"]
    table = plain_table("Restarts, judged by the clients' training loss")
    for head in ("restart", "train loss", "live clusters", "kept"):
        table.add_column(head, justify="right")
    for row in restarts:
        kept = "*" if row["restart"] == run.summary["kept_restart"] else ""
        live = "diverged" if row["live_clusters"] is None else str(row["live_clusters"])
        table.add_row(str(row["restart"]), _number(row["train_loss"]), live, kept)
    return table


def choice_table(found: dict[str, Any]) -> Table:
    """A row per k; the k that the data supports is marked. Test data is reported, never used to choose."""
    rows: list[dict[str, Any]] = found["table"]
    classifies = any(row["test_accuracy"] is not None for row in rows)
    kind, show = ("test_accuracy", _percent) if classifies else ("test_loss", _number)
    seeds = f"{len(found['seeds'])} seed" + ("s" if len(found["seeds"]) > 1 else "")
    what = f"{seeds}; test accuracy in %" if classifies else seeds
    table = plain_table(f"{title_of(found)} by number of clusters ({what})")
    word = "" if classifies else "test loss,\n"
    heads = ["k", "train loss", "live\nclusters", "stability", "silhouette"]
    for head in (*heads, f"{word}paper's\nrule", f"{word}train\nrule"):
        table.add_column(head, justify="right")
    for row in rows:
        mark = "* " if row["k"] == found["supported_k"] else ""
        table.add_row(
            f"{mark}{row['k']}",
            _number(row["train_loss"]) + _spread(row["train_loss_std"]),
            _live(row["live_clusters"]),
            _short(row["stability"]),
            _short(row["silhouette"]),
            show(row[kind]),
            show(row[f"{kind}_train_rule"]),
        )
    return table


def plain_table(title: str) -> Table:
    """A table that fits a terminal of 80 columns."""
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)


def _quality(found: dict[str, Any] | None, names: tuple[str, ...]) -> list[str]:
    """Some metrics of a summary's quality; older runs have none."""
    values = [(found or {}).get(name) for name in names]
    shown = [_number if name == "mae" else "{:.3f}".format for name in names]
    return ["–" if value is None else show(value) for show, value in zip(shown, values, strict=True)]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if abs(value) < LARGE else f"{value:.4g}".replace("e+0", "e")


def _live(live: list[int]) -> str:
    """4, or 3-4 where the seeds differ."""
    return str(live[0]) if len(set(live)) == 1 else f"{min(live)}-{max(live)}"


def _spread(value: float | None) -> str:
    return "" if value is None else f" ± {value:.4f}"


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
