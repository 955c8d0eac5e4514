"""How well each client is served, and who is served worst."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ifca.report.badly_served import badly_served, spoiled_clusters, worse_off
from ifca.report.page.axes import Ticks, nice
from ifca.report.page.charts import bars
from ifca.report.page.parts import Section, figure, folded, paragraph, table
from ifca.report.read_run import RunFolder
from ifca.report.words import count, number, percent

WORST = 10
KEYS = (
    *("test_accuracy_train_rule", "test_accuracy_unseen", "test_accuracy"),
    *("test_loss_train_rule", "test_loss_unseen", "test_loss", "train_loss"),
)
LATER = "This is known when the run has ended."


@dataclass(frozen=True)
class Scores:
    """One number per client that has it."""

    key: str
    ids: list[str]
    values: NDArray[np.float64]
    rows: list[dict[str, str]]

    @property
    def accuracy(self) -> bool:
        """Whether more is better."""
        return "accuracy" in self.key

    @property
    def name(self) -> str:
        """What is measured."""
        short = self.key.removesuffix("_train_rule").removesuffix("_unseen")
        return short.replace("_", " ").replace("train loss", "training loss")

    def show(self, value: float) -> str:
        """In words."""
        return percent(value, 1) if self.accuracy else number(value)

    @property
    def worst_first(self) -> list[int]:
        """Places, those served worst first."""
        signed = self.values if self.accuracy else -self.values
        return [int(i) for i in np.argsort(signed, kind="stable")]


def scores(run: RunFolder, key: str | None = None) -> Scores | None:
    """The clients' scores by the first of the keys that any of them has."""
    keys = KEYS if key is None else (key,)
    for name in keys:
        rows = [row for row in run.clients if row.get(name, "") != ""]
        if rows:
            return Scores(name, [r["id"] for r in rows], np.array([float(r[name]) for r in rows]), rows)
    return None


def served(run: RunFolder) -> Section:
    """The distribution over clients, and its bad end."""
    found = scores(run)
    if found is None:
        return Section("served", "How well each client is served", paragraph(LATER))
    low, high = float(found.values.min()), float(found.values.max())
    ticks = nice(low, 1.0 if found.accuracy else high, 5)
    ticks = [t for t in ticks if not (found.accuracy and t > 1 + 1e-9)]
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    heights, edges = np.histogram(found.values, 24, (low, high))
    names = [
        f"{found.show(a)} to {found.show(b)}: {count(int(n), 'client')}"
        for a, b, n in zip(edges[:-1], edges[1:], heights, strict=True)
    ]
    tick = (lambda t: f"{100 * t:g} %") if found.accuracy else number
    x: Ticks = [((t - low) / (high - low), tick(t)) for t in ticks]
    sentence = _spread(found)
    chart = bars(
        [int(n) for n in heights],
        x=x,
        show=lambda v: f"{v:,.0f}",
        label=f"Histogram of {found.name} over clients. {sentence}",
        y_title="clients",
        names=names,
    )
    body = figure(chart, sentence, f"{found.name.capitalize()} of each client") + _against(run, found)
    body += folded("Who is served worst, and who would be better off", _badly(run) + _worst(found))
    return Section("served", "How well each client is served", body)


def _spread(found: Scores) -> str:
    values, worst = found.values, found.worst_first[0]
    middle, tail = np.median(values), np.quantile(values, 0.1 if found.accuracy else 0.9)
    side, other = ("at least", "at most") if found.accuracy else ("at most", "at least")
    text = (
        f"How many clients have which {found.name}. Half of the {count(len(values), 'client')} have {side} "
    )
    text += f"{found.show(float(middle))}, a tenth {other} {found.show(float(tail))}; served worst is client "
    return text + f"{found.ids[worst]} with {found.show(float(values[worst]))}."


def _against(run: RunFolder, found: Scores) -> Markup:
    """Who would be better off with one model for all, or alone; training loss cannot tell."""
    told: list[str] = []
    if found.key == "train_loss":
        return Markup("")
    for name, who in (("global", "with one model for all"), ("local", "on their own")):
        other = scores(run.baselines[name], found.key) if name in run.baselines else None
        if other is None:
            continue
        theirs = dict(zip(other.ids, other.values.tolist(), strict=True))
        pairs = [(v, theirs[i]) for i, v in zip(found.ids, found.values.tolist(), strict=True) if i in theirs]
        better = sum((v > o) if found.accuracy else (v < o) for v, o in pairs)
        worse = sum((v < o) if found.accuracy else (v > o) for v, o in pairs)
        told.append(
            f"{better:,} of {count(len(pairs), 'client')} are served better than {who}, {worse:,} worse"
        )
    return paragraph(". ".join(told) + ".") if told else Markup("")


def _badly(run: RunFolder) -> Markup:
    """The worst tenth and the clients worse off, of every way to train."""
    found = badly_served(run)
    if found is None:
        return Markup("")
    title, heads, rows = found
    body = table(heads, rows, caption=title)
    return body + (
        paragraph(" ".join(told)) if (told := [*spoiled_clusters(run), *worse_off(run)]) else Markup("")
    )


def _worst(found: Scores) -> Markup:
    rows = []
    for i in found.worst_first[:WORST]:
        row = found.rows[i]
        samples = [f"{int(row[key] or 0):,}" for key in ("train_samples", "test_samples")]
        cluster = row.get("test_cluster_unseen") or row["cluster"]
        rows.append([found.ids[i], cluster, found.show(float(found.values[i])), *samples])
    heads = ["client", "cluster", found.name, "training samples", "test samples"]
    tested = 5 if any(row[4] != "0" for row in rows) else 4
    return table(
        heads[:tested], [row[:tested] for row in rows], caption=f"The {len(rows)} clients served worst"
    )
