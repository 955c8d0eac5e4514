"""Every number of several runs, a column each, and what the names mean."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from ifca.report.ending_words import ending_sentences
from ifca.report.page.metric import CHOSE, PAPER, UNSEEN
from ifca.report.page.parts import table
from ifca.report.page.quality_words import quality_rows
from ifca.report.read_run import RunFolder
from ifca.report.words import duration, number, percent, size_of, title_of


def side_by_side(runs: list[tuple[str, RunFolder]]) -> Markup:
    """Every headline number of several runs, a column each."""
    found = [run.summary for _, run in runs]
    rows = [
        ["test accuracy, train rule", *[percent(s.get("test_accuracy_train_rule")) for s in found]],
        ["test accuracy, paper's rule", *[percent(s.get("test_accuracy")) for s in found]],
        ["test accuracy, clients never seen", *[percent(s.get("test_accuracy_unseen")) for s in found]],
        ["test accuracy, worst tenth", *[percent(s.get("test_accuracy_worst_tenth")) for s in found]],
        ["test loss, train rule", *[number(s.get("test_loss_train_rule")) for s in found]],
        ["test loss, paper's rule", *[number(s.get("test_loss")) for s in found]],
        ["test loss, clients never seen", *[number(s.get("test_loss_unseen")) for s in found]],
        ["test loss, worst tenth", *[number(s.get("test_loss_worst_tenth")) for s in found]],
        ["training loss", *[number(s.get("train_loss")) for s in found]],
        *quality_rows(found),
        *_own_metrics(found),
        ["clusters with clients", *[_live(s) for s in found]],
        ["clients in the right cluster", *[percent(s.get("cluster_accuracy"), 1) for s in found]],
        ["adjusted Rand index", *[number(s.get("adjusted_rand_index")) for s in found]],
        ["NMI (equal to V-measure)", *[number(s.get("nmi")) for s in found]],
        ["rounds to adjusted Rand index 0.9", *[_rounds(s) for s in found]],
        ["sent down", *[size_of(s["bytes_down"]) for s in found]],
        ["sent up", *[size_of(s["bytes_up"]) for s in found]],
        ["time", *[duration(s["seconds"]) for s in found]],
    ]
    known = [row for row in rows if any(value != "–" for value in row[1:])]
    return table(["", *[name for name, _ in runs]], known, caption="All numbers")


def _rounds(summary: dict[str, Any]) -> str:
    first = summary.get("rounds_to_ari_0.9")
    return "–" if first is None else f"{first:,}"


def _own_metrics(found: list[dict[str, Any]]) -> list[list[str]]:
    """Metrics of the user's own, by both rules."""
    rules = (("train rule", "test_metrics_train_rule"), ("paper's rule", "test_metrics"))
    names = dict.fromkeys(name for s in found for name in s.get("test_metrics") or {})
    return [
        [f"{name} on test data, {rule}", *[number((s.get(key) or {}).get(name)) for s in found]]
        for name in names
        for rule, key in rules
    ]


def _live(summary: dict[str, Any]) -> str:
    return "–" if summary["method"]["personal"] else f"{summary['live_clusters']} of {summary['k']}"


def meanings(runs: list[RunFolder]) -> Markup:
    """Methods and rules in words."""
    told = [run.summary["method"]["about"] for run in runs]
    rules = (
        [f"Train rule: {CHOSE}. Paper's rule: {PAPER}."]
        if runs[0].summary.get("test_loss") is not None
        else []
    )
    if any(run.summary.get("test_clients_unseen") for run in runs):
        rules.append(f"Never seen: {UNSEEN}.")
    rules += [f"{title_of(one.summary)}: {text}" for one in runs for text in ending_sentences(one.summary)]
    items = [*[about[0].upper() + about[1:] + "." for about in told], *rules]
    return Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(text) for text in items))
