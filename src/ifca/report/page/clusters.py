"""Who is in which cluster over time."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from markupsafe import Markup

from ifca.report.page.axes import Ticks, chosen, legend, picture, round_ticks
from ifca.report.page.charts import POINTS, bars
from ifca.report.page.flow import flow
from ifca.report.page.history import History
from ifca.report.page.images import COLUMNS, ROWS, identity_picture
from ifca.report.page.parts import Section, figure, folded, paragraph
from ifca.report.palette import COLOURS, colour
from ifca.report.read_run import RunFolder
from ifca.report.words import count, listed

STOPS = 5  # of the flow


def over_time(run: RunFolder, past: History) -> Section:
    """The map of clients x rounds, the moves, and the flow between clusters."""
    k = run.summary["k"]
    if k == 1:
        return Section(
            "clusters", "Who is in which cluster", paragraph("There is one model, for all clients.")
        )
    present = sorted(set(past.table[past.table >= 0].tolist()))
    keys = legend([(colour(j), f"cluster {j}") for j in present])
    body = figure(keys + _map(past), _map_sentence(run, past), "Clients by rounds")
    if past.last_change() is None:  # a flat chart: the sentence says it all
        return Section("clusters", "Who is in which cluster over time", body, _settled(past))
    more = figure(_moves(past), _moves_sentence(past), "Clients that changed cluster")
    stops = _stops(past)
    if len(stops) > 1:
        named = [(past.column(c), past.table[:, c].tolist()) for c in stops]
        label = f"Flow of clients between clusters at {listed([name for name, _ in named])}. " + _net(
            past, stops
        )
        sentence = "Bands are clients on their way from cluster to cluster; the wider, the more. " + _net(
            past, stops
        )
        more += figure(keys + flow(named, k, label=label), sentence, "The way from cluster to cluster")
    body += folded("When clients moved, and where to", more)
    return Section("clusters", "Who is in which cluster over time", body)


def _map(past: History) -> Markup:
    rows, columns = chosen(len(past.order), ROWS), chosen(past.table.shape[1], COLUMNS)
    drawn = past.table[past.order[rows]][:, columns]
    names = [past.group[i] for i in rows]
    word = "true" if past.by_truth else "cluster"
    y: Ticks = []
    edges, at = [], 0
    for name, members in groupby(names):
        wide = len(list(members))
        y.append((1 - (at + wide / 2) / len(names), f"{word} {name}" if name != "-1" else "none yet"))
        at += wide
        edges.append(at / len(names))
    x = round_ticks(list(range(1, past.rounds + 1)))
    if past.final:
        x = [(place * past.rounds / (past.rounds + 1), text) for place, text in x if place < 0.93] + [
            (1.0, "end")
        ]
    size = f"{count(len(past.order), 'client')} (rows) by {count(past.rounds, 'round')} (columns)"
    height = min(420, max(140, 3 * len(rows)))
    return picture(
        identity_picture(drawn),
        label=f"Map of {size}, coloured by cluster. {_settled(past)}",
        x=x,
        y=y,
        y_title="",
        height=height,
        edges=edges[:-1],
        data={"of": "moves", "rows": past.order[rows].tolist(), "columns": columns},
    )


def _map_sentence(run: RunFolder, past: History) -> str:
    by = "true cluster" if past.by_truth else "their last cluster"
    text = f"Each row is a client, each column a round, each colour a cluster; clients are sorted by {by}."
    if any(record["clients"] is not None for record in run.rounds):
        text += " A client that did not take part in a round keeps the colour of its last choice."
    if run.summary["k"] > len(COLOURS):
        text += f" Colours repeat after {len(COLOURS)} clusters."
    m, rows = len(past.order), len(chosen(len(past.order), ROWS))
    if rows < m:
        text += f" Drawn are {rows} of the {m:,} clients, evenly spaced in this order."
    columns = past.table.shape[1]
    if columns > COLUMNS:
        text += f" Drawn are {COLUMNS} of the {columns:,} rounds."
    return f"{text} {_settled(past)}"


def _settled(past: History) -> str:
    last, moved = past.last_change(), int(past.changes.sum())
    if last is None:
        return "No client ever changed its cluster."
    ever = int(((past.table[:, 1:] != past.table[:, :-1]) & (past.table[:, :-1] >= 0)).any(1).sum())
    changes = count(moved, "change")
    text = f"{ever:,} of {count(len(past.order), 'client')} changed cluster at some time ({changes} in all)"
    if past.column(last) == "end":
        return f"{text}; {count(int(past.changes[last]), 'client')} still did at the very end."
    if last + 1 < past.rounds:
        return f"{text}; after round {last + 1} nobody did any more."
    return f"{text}; some still did in the last round."


def _moves(past: History) -> Markup:
    columns = past.table.shape[1]
    width = -(-columns // POINTS)  # rounds in one column of the chart
    moved = [int(past.changes[a : a + width].sum()) for a in range(0, columns, width)]
    names = [
        f"{past.column(i * width)}: {count(n, 'client')}"
        if width == 1
        else f"from {past.column(i * width)}: {n}"
        for i, n in enumerate(moved)
    ]
    x = [
        ((place * (past.rounds - 1) + 0.5) / columns, t)
        for place, t in round_ticks(list(range(1, past.rounds + 1)))
    ]
    return bars(
        moved,
        x=[(place, t) for place, t in x if not past.final or place < 0.93]
        + ([(1.0, "end")] if past.final else []),
        show=lambda v: f"{v:,.0f}",
        label=f"Column chart of changes by round. {_settled(past)}",
        y_title="clients",
        names=names,
        height="low",
    )


def _moves_sentence(past: History) -> str:
    top = int(past.changes.max())
    text = "How many clients are in another cluster than in the round before, by their own choice or because "
    return (
        f"{text}a cluster was divided. Most at once: {top:,}, at {past.column(int(past.changes.argmax()))}."
    )


def _stops(past: History) -> list[int]:
    """The first and the last column, and those between which clients moved."""
    total, last = past.changes.sum(), past.table.shape[1] - 1
    first = int(np.argmax((past.table >= 0).mean(0) > 0.5))  # most have chosen
    grown = np.cumsum(past.changes)
    inner = [int(np.searchsorted(grown, total * share)) for share in (0.25, 0.5, 0.75, 1.0)] if total else []
    found = sorted({first, *[c for c in inner if c > first], last})
    return found[: STOPS - 1] + found[-1:] if len(found) > STOPS else found


def _net(past: History, stops: list[int]) -> str:
    a, b = past.table[:, stops[0]], past.table[:, stops[-1]]
    stayed = int(((a == b) & (a >= 0)).sum())
    known = int((a >= 0).sum())
    return (
        f"{stayed:,} of {count(known, 'client')} are at the end where they were at {past.column(stops[0])}."
    )
