"""What came out, against the baselines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ifca.methods import facts_of
from ifca.report.page.all_numbers import meanings, side_by_side
from ifca.report.page.metric import Metric, metric_of
from ifca.report.page.parts import Section, figure, folded, paragraph
from ifca.report.page.quality_words import quality_body, quality_tile
from ifca.report.page.ranking import bar_of, ranking
from ifca.report.read_run import RunFolder
from ifca.report.words import clusters_asked, count, duration, listed, number, percent, size_of, title_of

FLATTERY = (
    "There are no test data: training loss is measured on what a model has learned from, which flatters "
    "small groups, and clients on their own most of all."
)


def tiles(run: RunFolder) -> list[tuple[str, str, str]]:
    """The run at a glance: (name, value, remark)."""
    s, metric = run.summary, metric_of(run)
    found = [(metric.name, metric.show(metric.of(s)), _against(run, metric))]
    found += quality_tile(s)
    if s["live_clusters"] is not None and not s["method"]["personal"]:
        found.append(("clusters with clients", f"{s['live_clusters']} of {s['k']}", _most(run)))
    if s.get("cluster_accuracy") is not None and s["k"] > 1:
        found.append(("clients in the right cluster", percent(s["cluster_accuracy"], 1), "against the truth"))
    found.append(("clients", f"{s['clients']:,}", _tested(s)))
    done = "" if run.finished else f"of {run.planned:,}"
    found.append(("rounds", f"{len(run.rounds):,}", done or duration(s["seconds"]) + " in all"))
    found.append(("data sent", size_of(s["bytes_down"] + s["bytes_up"]), _both_ways(s)))
    return found


def headline(run: RunFolder) -> Section:
    """The algorithm beside its baselines."""
    metric, name = metric_of(run), title_of(run.summary)
    runs = _ranked(run, metric)
    body = paragraph(_verdict(run, metric))
    if len(runs) > 1:
        bars = [bar_of(one, metric, title_of(one.summary), one is run) for one in runs]
        better = "Longer" if metric.accuracy else "Shorter"
        sentence = f"{better} is better; {metric.rule}. Thin lines are 95 % intervals over clients."
        title = f"{metric.name.capitalize()} of each way to train on the same data"
        body += figure(ranking(bars, title, metric), sentence, title)
    if (behind := _behind(run, runs, metric)) and metric.key != "train_loss":
        body += paragraph(behind)
    body += quality_body(run)
    for other, summary in run.summary.get("baselines", {}).items():
        if "error" in summary:
            body += paragraph(f"{facts_of(other)['title']} has no result: {summary['error']}")
    named = [(title_of(other.summary), other) for other in run.baselines.values()]
    body += folded(
        "All numbers, and what the names mean", side_by_side([(name, run), *named]) + meanings(runs)
    )
    return Section("result", "What came out", body)


def _ranked(run: RunFolder, metric: Metric) -> list[RunFolder]:
    """The run and its baselines, the best first."""
    known = [other for other in run.baselines.values() if metric.of(other.summary) is not None]
    return sorted(
        [run, *known], key=lambda one: (metric.of(one.summary) or 0.0) * (-1 if metric.accuracy else 1)
    )


def _behind(run: RunFolder, runs: Sequence[RunFolder], metric: Metric) -> str:
    """Where the run is not first: whether that is more than noise, and what else is known."""
    if runs[0] is run or (gain := metric.gain(run, runs[0])) is None or not gain.value:
        return ""
    first, name = title_of(runs[0].summary), title_of(run.summary)
    text = f"{name} is not first: {_what(metric)}{metric.words(gain, first)}"
    text += f", on {count(gain.clients, 'client')}. "
    if gain.low is not None and not gain.beyond_noise:
        text += "The interval includes 0, so the order of the two may be chance"
    else:
        text += f"That is more than noise: on these data {first} serves clients better"
    if _same_clusters(run, runs[0]):
        return f"{text}; both found the same clusters, only their models were trained in another way."
    return f"{text}."


def _what(metric: Metric) -> str:
    return "" if metric.accuracy else f"its {metric.name} is "


def _same_clusters(run: RunFolder, other: RunFolder) -> bool:
    """Whether two methods put the same clients together, whatever they call the clusters."""
    if not (run.summary["method"]["clustered"] and other.summary["method"]["clustered"]):
        return False
    theirs = {row["id"]: row["cluster"] for row in other.clients}
    pairs = {(row["cluster"], theirs.get(row["id"])) for row in run.clients}
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}) > 1


def _verdict(run: RunFolder, metric: Metric) -> str:
    name, value = title_of(run.summary), metric.of(run.summary)
    if value is None:
        return "Nothing can be said before the first round has ended."
    if metric.accuracy:
        text = f"With {name}, {percent(value)} of the predictions on test data are right"
    else:
        text = f"With {name}, the {metric.name} is {number(value)}"
    if not run.finished:
        return f"{text} so far."
    simple_first = sorted(run.baselines.values(), key=lambda one: bool(one.summary["method"]["clustered"]))
    told = [_compared(run, metric, other) for other in simple_first if metric.of(other.summary) is not None]
    text = f"{text}: {listed(told)}." if told else f"{text}."
    return f"{text} {FLATTERY}" if metric.key == "train_loss" and told else text


def _called(run: RunFolder) -> str:
    """A method inside a sentence."""
    facts = run.summary["method"]
    if facts["clustered"]:
        return title_of(run.summary)
    return "clients on their own" if facts["personal"] else "one model for all clients"


def _compared(run: RunFolder, metric: Metric, other: RunFolder) -> str:
    value, against, who = metric.of(run.summary) or 0.0, metric.of(other.summary) or 0.0, _called(other)
    gain = metric.gain(run, other)
    if metric.show(value) == metric.show(against) or gain is None:
        return f"the same as {who}" if value == against else f"{metric.show(against)} for {who}"
    return metric.words(gain, who)


def _against(run: RunFolder, metric: Metric) -> str:
    """What the run has more than the best of the simple ways."""
    plain = [one for one in _ranked(run, metric) if one is not run and not one.summary["method"]["clustered"]]
    if not plain or metric.key == "train_loss" or (gain := metric.gain(run, plain[0])) is None:
        return metric.range(metric.estimate(metric.scores(run)))
    return metric.words(gain, _called(plain[0]))


def _most(run: RunFolder) -> str:
    """Why clusters were left over: k was a limit."""
    s = run.summary
    most = clusters_asked(s)
    over = run.finished and s["method"]["at_most_k"] and s["live_clusters"] < most
    return f"{most} was the most allowed" if over else ""


def _tested(summary: dict[str, Any]) -> str:
    tested = summary.get("test_clients")
    return "" if not tested or tested == summary["clients"] else f"{count(tested, 'client')} tested"


def _both_ways(summary: dict[str, Any]) -> str:
    return f"{size_of(summary['bytes_down'])} down, {size_of(summary['bytes_up'])} up"
