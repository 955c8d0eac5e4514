"""What the server decided in a run, as a table for the terminal."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from rich.table import Table

from ifca.report.read_run import RunFolder
from ifca.report.terminal.run_tables import plain_table

FEW = 2  # events of one kind that are shown one by one


def events_table(run: RunFolder) -> Table:
    """What was decided about clusters in the rounds, with its evidence."""
    split = any(event["event"] == "split" for event in run.summary["events"])
    table = plain_table("Clusters split" if split else "Clusters merged and kept")
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
