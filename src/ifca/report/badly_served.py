"""Who is served badly, as a small table: the worst tenth, clients worse off than by a simple method."""

from __future__ import annotations

from typing import Any

from ifca.report.read_run import RunFolder
from ifca.report.words import number, percent, title_of

NAMED = 10
"""Clients named in a sentence at most."""


def badly_served(run: RunFolder) -> tuple[str, list[str], list[list[str]]] | None:
    """Title, heads and rows, a row per method; None where nothing is known, as in older folders."""
    summaries = [run.summary, *[other.summary for other in run.baselines.values()]]
    show = percent if run.summary.get("test_accuracy_worst_tenth") is not None else number
    key = "test_accuracy_worst_tenth" if show is percent else "test_loss_worst_tenth"
    if all(one.get(key) is None for one in summaries):
        return None
    titles = {one["algorithm"]: title_of(one) for one in summaries}
    worse: dict[str, dict[str, Any]] = run.summary.get("worse_than") or {}
    simple = [name for name in titles if any(name in others for others in worse.values())]
    rows = [
        [title_of(one), show(one.get(key)), *[_cell(worse, one["algorithm"], other) for other in simple]]
        for one in summaries
    ]
    title = "Clients served badly"
    heads = ["", "worst tenth", *[f"worse than {titles[name]}" for name in simple]]
    if unseen := max(one.get("test_clients_unseen") or 0 for one in summaries):
        title += ", and clients never seen"
        heads.append(f"never seen ({unseen:,})")
        rows = [[*row, show(one.get(_unseen(key)))] for row, one in zip(rows, summaries, strict=True)]
    return title + f" (test {'accuracy' if show is percent else 'loss'})", heads, rows


def worse_off(run: RunFolder) -> list[str]:
    """A sentence for each simple method that serves some clients better than the run does."""
    told: dict[str, Any] = (run.summary.get("worse_than") or {}).get(run.summary["algorithm"], {})
    titles = {other.summary["algorithm"]: title_of(other.summary) for other in run.baselines.values()}
    sentences = []
    for name, found in told.items():
        if found["worse"] and name in titles:
            names = ", ".join(found["who"][:NAMED])
            more = found["worse"] - NAMED
            sentences.append(
                f"Clients better off with {titles[name]}: {names}"
                + (f" and {more:,} more." if more > 0 else ".")
            )
    return sentences


def spoiled_clusters(run: RunFolder) -> list[str]:
    """A sentence for each cluster whose clients a simple method serves better, beyond chance."""
    told: dict[str, Any] = (run.summary.get("worse_than") or {}).get(run.summary["algorithm"], {})
    titles = {other.summary["algorithm"]: title_of(other.summary) for other in run.baselines.values()}
    return [
        f"Cluster {one['cluster']} is served worse than by {titles[name]}: {one['worse']:,} of "
        f"{one['clients']:,} clients (p = {one['p']:.2g}). Its model does not fit them: they are unlike, or "
        "some of them spoil it."
        for name, found in told.items()
        for one in (found.get("clusters") or () if name in titles else ())
    ]


def _unseen(key: str) -> str:
    return key.replace("worst_tenth", "unseen")


def _cell(worse: dict[str, dict[str, Any]], name: str, other: str) -> str:
    """3 of 112 (2.7 %)."""
    found = worse.get(name, {}).get(other)
    if not found or found["share"] is None:
        return "–"
    return f"{found['worse']:,} of {found['clients']:,} ({percent(found['share'], 1)})"
