"""The first answer on the page: who is in which cluster, how each is served, and what it is about."""

from __future__ import annotations

import math

from markupsafe import Markup

from ifca.report.intervals import WHICH
from ifca.report.page.distinguish import thumbnails
from ifca.report.page.metric import Metric, metric_of
from ifca.report.page.parts import Section, folded, paragraph
from ifca.report.page.traits import Differences, plain, read_differences, traits
from ifca.report.palette import colour
from ifca.report.read_run import RunFolder
from ifca.report.words import count, signed

NAMED = 12  # clients of a cluster that are named at once
SHOWN = 12  # cards at once, the largest clusters first
SIMPLE = (("global", "one model for all"), ("local", "clients on their own"))


def cards(run: RunFolder) -> Section | None:
    """A card per cluster; None before the end, and where every client has a model of its own."""
    if not run.finished or run.summary["method"]["personal"]:
        return None
    trained = run.clients[: run.summary["clients"]]
    members: dict[int, list[dict[str, str]]] = {}
    for row in trained:
        members.setdefault(int(row["cluster"]), []).append(row)
    live = sorted(
        (j for j in members if j >= 0), key=lambda j: (-len(members[j]), j) if len(members) > SHOWN else j
    )
    metric, found = metric_of(run), read_differences(run)
    drawn = [_card(run, metric, found, j, members[j]) for j in live]
    body = _grid(drawn[:SHOWN])
    if len(drawn) > SHOWN:
        body += folded(f"{len(drawn) - SHOWN:,} smaller clusters", _grid(drawn[SHOWN:]))
    if lost := members.get(-1):
        body += paragraph(
            f"{count(len(lost), 'client')} chose no cluster: {', '.join(row['id'] for row in lost[:NAMED])}."
        )
    title = "Who is in which cluster" if len(live) > 1 else "Who was trained together"
    return Section("groups", title, body + Markup('<p class="note">{}</p>').format(WHICH))


def _grid(drawn: list[Markup]) -> Markup:
    return Markup('<div class="cards">{}</div>').format(Markup("").join(drawn))


def _card(
    run: RunFolder, metric: Metric, found: Differences | None, j: int, rows: list[dict[str, str]]
) -> Markup:
    samples = sum(int(row["train_samples"]) for row in rows)
    head = Markup('<h3><i class="key" style="--key:{}"></i>Cluster {}</h3>').format(colour(j), j)
    size = f"{count(len(rows), 'client')}, {samples:,} training samples"
    body = (
        head
        + Markup('<p class="size">{}</p>').format(size)
        + _score(run, metric, found, j, rows)
        + _names(rows)
    )
    if found is not None and j in found["clusters"]:
        body += thumbnails(run, found, j)
        if told := traits(run, found, j):
            items = Markup("").join(Markup("<li>{}</li>").format(one) for one in told)
            body += Markup('<p class="about">What distinguishes it</p><ul class="traits">{}</ul>').format(
                items
            )
        elif not found.get("images"):
            body += Markup('<p class="about">{}</p>').format("Its samples look like those of the others.")
    return Markup('<div class="card" style="--key:{}">{}</div>').format(colour(j), body)


def _score(
    run: RunFolder, metric: Metric, differences: Differences | None, j: int, rows: list[dict[str, str]]
) -> Markup:
    names = {row["id"] for row in rows}
    if "unseen" in metric.key:  # who is tested was never in training
        names = {row["id"] for row in run.clients if row.get("test_cluster_unseen") == str(j)}
    mine = {name: score for name, score in metric.scores(run).items() if name in names}
    found = metric.estimate(mine)
    if found is None:
        return Markup('<p class="size">None of its clients was tested.</p>')
    told = metric.range(found)
    sure = f"{metric.name}, {told}" if told else metric.name
    text = Markup('<p class="score">{} <small>{}</small></p>').format(metric.show(found.value), sure)
    if off := _typical(metric, found.value, differences, j):
        text += Markup('<p class="size">{}</p>').format(off)
    gains = []
    for name, who in SIMPLE:
        if name in run.baselines and metric.key != "train_loss":
            gain = metric.gain(run, run.baselines[name], names)
            if gain is not None:
                gains.append(Markup("<li>{}</li>").format(metric.words(gain, who)))
    return text + (Markup('<ul class="gains">{}</ul>').format(Markup("").join(gains)) if gains else "")


def _typical(metric: Metric, loss: float, found: Differences | None, j: int) -> str:
    """A squared error in the unit of the target, and beside the target's variance."""
    if found is None or not found.get("target_variance") or not metric.key.startswith("test_loss"):
        return ""
    variance = found["target_variance"][found["clusters"].index(j)]
    told = f"typically off by {plain(math.sqrt(loss))} (root of the mean squared error)"
    if variance <= 0:
        return told
    told += f", R² {signed(f'{1 - loss / variance:.2f}')}"
    return told if loss < variance else f"{told}: worse than always saying the mean"


def _names(rows: list[dict[str, str]]) -> Markup:
    names = [row["id"] for row in rows]
    named = [*[f"{name}," for name in names[: NAMED - 1]], *names[NAMED - 1 : NAMED]]
    named[-1] = named[-1].removesuffix(",")
    spans = [Markup("<span>{}</span>").format(name) for name in named]  # a name is not broken at its hyphen
    text = Markup('<p class="names">{}</p>').format(Markup(" ").join(spans))
    if len(names) > NAMED:
        rest = Markup('<p class="names">{}</p>').format(", ".join(names[NAMED:]))
        text += folded(f"and {len(names) - NAMED:,} more", rest)
    return text
