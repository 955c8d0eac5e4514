"""A run as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
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
FEW = 2  # events of one kind that are shown one by one


def comparison_table(run: RunFolder) -> Table:
    """The algorithms side by side; accuracy by both rules, in regression the test loss instead.

    How many clients are in the right cluster where that is known; else AUROC, in regression R2.
    """
    summaries = [run.summary, *[other.summary for other in run.baselines.values()]]
    classifies = run.summary["test_accuracy"] is not None
    table = _table("Algorithms side by side" + (" (test accuracy in %)" if classifies else ""))
    table.add_column("algorithm")
    loss = "" if classifies else "test\nloss,\n"
    kind, show, main = ("test_accuracy", _percent, "auroc") if classifies else ("test_loss", _number, "r2")
    known = any(summary["cluster_accuracy"] is not None for summary in summaries)
    fourth = "clusters\nright %" if known else QUALITY[main]
    rules = f"{loss}paper's\nrule", f"{loss}train\nrule"
    for head in (*rules, "train\nloss", fourth, "bytes\ndown", "bytes\nup", "seconds"):
        table.add_column(head, justify="right")
    for summary in summaries:
        (quality,) = _quality((summary.get("quality") or {}).get("overall"), (main,))
        table.add_row(
            title_of(summary),
            show(summary[kind]),
            show(summary[kind + "_train_rule"]),
            _number(summary["train_loss"]),
            _percent(summary["cluster_accuracy"]) if known else quality,
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
    table = _table(title)
    table.add_column("algorithm")
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def best_method_table(found: dict[str, Any]) -> Table:
    """Methods that were compared, the best first."""
    title, heads, rows = standings_table(found)
    table = _table(title)
    for head in heads:
        table.add_column(head, justify="left" if head in ("method", "verdict") else "right")
    for row in rows:
        table.add_row(*row)
    return table


def clusters_table(run: RunFolder) -> Table:
    """The recovered clusters, against the true ones where they are known."""
    true: dict[str, list[int]] = run.summary["true_clusters"] or {}
    table = _table("Recovered clusters" + (" against true ones (clients)" if true else ""))
    classifies = run.summary["test_accuracy"] is not None
    judged = (run.summary.get("quality") or {}).get("clusters")
    names = () if judged is None or true else ("auroc", "f1") if classifies else ("mae", "r2")
    tested_head = "test\naccuracy %" if classifies else "test\nloss"
    for head in ("cluster", "clients", tested_head, *(QUALITY[name] for name in names), "train\nloss"):
        table.add_column(head, justify="right")
    for name in true:
        table.add_column(f"true {name}", justify="right")
    for cluster in run.summary["clusters"]:
        counts = [str(row[cluster["cluster"]]) for row in true.values()]
        tested = _percent(cluster.get("test_accuracy")) if classifies else _number(cluster.get("test_loss"))
        who = str(cluster["cluster"]), str(cluster["clients"])
        more = _quality(None if judged is None else judged[cluster["cluster"]], names)
        table.add_row(*who, tested, *more, _number(cluster["train_loss"]), *counts)
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
    table = _table("Restarts, judged by the clients' training loss")
    for head in ("restart", "train loss", "live clusters", "kept"):
        table.add_column(head, justify="right")
    for row in restarts:
        kept = "*" if row["restart"] == run.summary["kept_restart"] else ""
        live = "diverged" if row["live_clusters"] is None else str(row["live_clusters"])
        table.add_row(str(row["restart"]), _number(row["train_loss"]), live, kept)
    return table


def events_table(run: RunFolder) -> Table:
    """What was decided about clusters in the rounds, with its evidence."""
    split = any(event["event"] == "split" for event in run.summary["events"])
    table = _table("Clusters split" if split else "Clusters merged and kept")
    for head, justify in (("after round", "right"), ("event", "left"), ("evidence", "left")):
        table.add_column(head, justify=justify)  # type: ignore[arg-type]
    for merged, together in groupby(
        run.summary["events"], lambda one: one["event"] == "merged" and "p" in one
    ):
        some = list(together)
        if merged and len(some) > FEW:
            table.add_row(*_merged(some))
            continue
        for event in some:
            table.add_row(str(event["round"] + 1), *_told(event))
    return table


def _merged(some: list[dict[str, Any]]) -> tuple[str, str, str]:
    """Many groups that became one, in a line; the page has them all."""
    closest = min(some, key=lambda one: float(one["p"]))
    when = sorted({some[0]["round"] + 1, some[-1]["round"] + 1})
    said = f"one model for both costs {closest['loses']:+.3g} a sample, p = {closest['p']:.2g} at the least"
    return " to ".join(map(str, when)), f"{len(some)} times two became one", said


def _told(event: dict[str, Any]) -> tuple[str, str]:
    """An event and its evidence in words."""
    kind = event["event"]
    if kind == "free":
        return "clients choose", f"{event['moved']:.0%} of them another cluster than they had"
    if kind == "parted":
        return f"parted into {event['clusters']}, to try", "by the directions of clients' updates"
    if "p" in event:
        a, b = event["cluster"], event["other"]
        verdict = f"{a} and {b} are both needed" if kind == "kept" else f"{a} and {b} became one"
        said = f"one model for both costs {event['loses']:+.3g} a sample, p = {event['p']:.2g}"
        return verdict, f"{said} ({event['samples']} samples)"
    j = event["cluster"]
    if kind == "merged":
        said = f"first updates of their clients have a cosine of {event['cosine']:.2f}"
        return f"{j} and {event['other']} became one", said
    if kind == "split":
        groups, into = " + ".join(map(str, event["clients"])), ", ".join(map(str, event["into"]))
        if "cosine" in event:
            said = f"updates in groups of {groups}, the largest cosine across is {event['cosine']:.2f}"
            return f"{j} split into {into}", said
        far = f"updates in groups of {groups}, {event['separation']:.1f} deviations apart"
        return f"{j} split into {into}" + ("" if event["clear"] else ", to try"), far
    if kind == "dead":
        return f"{j} given up", "no client chose it"
    if event["loss"] is None:
        loss = "nobody to judge it"
    else:
        loss = f"loss of {event['clients']} clients {event['loss']:.3f}, under model {event['other']} "
        loss += f"{event['loss_under_other']:.3f}"
        if kind == "undone":
            loss += f", before the split {event['loss_before']:.3f}"
    what = {"kept": "kept", "undone": "given up again", "twins": f"merged into {event['other']}"}
    return f"{j} {what[kind]}", loss


def bench_table(rows: list[dict[str, Any]]) -> Table:
    """The engines of a bench, side by side."""
    head = rows[0] if rows else {"job": "", "scale": 1, "gemm_gflops": 0, "device": ""}
    rate = f"{head['gemm_gflops']:,.0f} GFLOP/s float32 products"
    table = _table(f"{head['job']} at scale {head['scale']:g} on {head['device']} ({rate})")
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


def choice_table(found: dict[str, Any]) -> Table:
    """A row per k; the k that the data supports is marked. Test data is reported, never used to choose."""
    rows: list[dict[str, Any]] = found["table"]
    classifies = any(row["test_accuracy"] is not None for row in rows)
    kind, show = ("test_accuracy", _percent) if classifies else ("test_loss", _number)
    seeds = f"{len(found['seeds'])} seed" + ("s" if len(found["seeds"]) > 1 else "")
    what = f"{seeds}; test accuracy in %" if classifies else seeds
    table = _table(f"{title_of(found)} by number of clusters ({what})")
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


def _table(title: str) -> Table:
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
