"""What came out, against the baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ifca.methods import facts_of
from ifca.report.page.parts import Section, figure, folded, paragraph, table
from ifca.report.read_run import RunFolder
from ifca.report.words import count, duration, listed, number, percent, size_of, title_of

CHOSE = "each client is served by the model it chose on its own training data"
PAPER = (
    "each test client is served by the model that fits its test data best "
    "(the paper's rule, which looks at the answers)"
)
UNSEEN = (
    "each client was never in training: one half of its data chose its model, the other half is what counts"
)

FLATTERY = (
    "There are no test data: training loss is measured on what a model has learned from, which flatters "
    "small groups, and clients on their own most of all."
)


@dataclass(frozen=True)
class Metric:
    """What a run is judged by."""

    key: str
    name: str
    accuracy: bool
    rule: str

    def of(self, summary: dict[str, Any]) -> float | None:
        """Its value in a run."""
        value: float | None = summary.get(self.key)
        return value

    def show(self, value: float | None) -> str:
        """In words."""
        return percent(value) if self.accuracy else number(value)


METRICS = (
    Metric("test_accuracy_train_rule", "test accuracy", True, CHOSE),
    Metric("test_accuracy_unseen", "test accuracy", True, UNSEEN),
    Metric("test_accuracy", "test accuracy", True, PAPER),
    Metric("test_loss_train_rule", "test loss", False, CHOSE),
    Metric("test_loss_unseen", "test loss", False, UNSEEN),
    Metric("test_loss", "test loss", False, PAPER),
    Metric("train_loss", "training loss", False, "each client under its own model; there are no test data"),
)


def metric_of(*runs: RunFolder) -> Metric:
    """The best-founded number that all runs have."""
    found = [m for m in METRICS if all(m.of(run.summary) is not None for run in runs)]
    return found[0] if found else METRICS[-1]


def tiles(run: RunFolder) -> list[tuple[str, str, str]]:
    """The run at a glance: (name, value, remark)."""
    s, metric = run.summary, metric_of(run)
    best = None if metric.key == "train_loss" else _best_baseline(run, metric)
    found = [(metric.name, metric.show(metric.of(s)), _against(metric, metric.of(s), best))]
    if s["live_clusters"] is not None and not s["method"]["personal"]:
        found.append(("clusters with clients", f"{s['live_clusters']} of {s['k']}", ""))
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
    others = [other for other in run.baselines.values() if metric.of(other.summary) is not None]
    runs = sorted([run, *others], key=lambda one: _rank(metric, one))
    values = [metric.of(one.summary) or 0.0 for one in runs]
    body = paragraph(_verdict(run, metric))
    if len(runs) > 1:
        label = f"{metric.name.capitalize()} of {len(runs)} ways to train: " + ", ".join(
            f"{title_of(one.summary)} {metric.show(value)}" for one, value in zip(runs, values, strict=True)
        )
        bars = [
            (title_of(one.summary), value, metric.show(value), one is run)
            for one, value in zip(runs, values, strict=True)
        ]
        better = "longer" if metric.accuracy else "shorter"
        sentence = f"{metric.name.capitalize()} of each way to train on the same data; {better} is better, "
        sentence += f"and {metric.rule}."
        body += figure(ranking(bars, label), sentence)
    for other, summary in run.summary.get("baselines", {}).items():
        if "error" in summary:
            body += paragraph(f"{facts_of(other)['title']} has no result: {summary['error']}")
    body += folded(
        "All numbers, and what the names mean", side_by_side([(name, run), *_named(run)]) + _meanings(runs)
    )
    return Section("result", "What came out", body)


def ranking(bars: list[tuple[str, float, str, bool]], label: str) -> Markup:
    """Horizontal bars: (name, value, text, whether it is the run itself)."""
    top = max((value for _, value, _, _ in bars), default=1.0) or 1.0
    rows = Markup("").join(
        Markup(
            '<div class="bar{}"><span class="who">{}</span>'
            '<span class="track"><i style="width:{:.2f}%"></i></span><span class="value">{}</span></div>'
        ).format(" mine" if mine else "", name, 100 * max(0.0, value) / top, text)
        for name, value, text, mine in bars
    )
    return Markup('<div class="ranking" role="img" aria-label="{}">{}</div>').format(label, rows)


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


def _meanings(runs: list[RunFolder]) -> Markup:
    told = [run.summary["method"]["about"] for run in runs]
    rules = (
        [f"Train rule: {CHOSE}. Paper's rule: {PAPER}."]
        if runs[0].summary.get("test_loss") is not None
        else []
    )
    if any(run.summary.get("test_clients_unseen") for run in runs):
        rules.append(f"Never seen: {UNSEEN}.")
    items = [*[about[0].upper() + about[1:] + "." for about in told], *rules]
    return Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(text) for text in items))


def _named(run: RunFolder) -> list[tuple[str, RunFolder]]:
    return [(title_of(other.summary), other) for other in run.baselines.values()]


def _rank(metric: Metric, run: RunFolder) -> float:
    value = metric.of(run.summary) or 0.0
    return -value if metric.accuracy else value


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
    others = [(_called(one), metric.of(one.summary)) for one in simple_first]
    told = [_compared(metric, value, who, other) for who, other in others if other is not None]
    text = f"{text}: {listed(told)}." if told else f"{text}."
    return f"{text} {FLATTERY}" if metric.key == "train_loss" and told else text


def _called(run: RunFolder) -> str:
    """A method inside a sentence."""
    facts = run.summary["method"]
    if facts["clustered"]:
        return title_of(run.summary)
    return "clients on their own" if facts["personal"] else "one model for all clients"


def _compared(metric: Metric, value: float, who: str, other: float) -> str:
    if metric.accuracy:
        points = 100 * (value - other)
        if abs(points) < 0.05:
            return f"the same as {who}"
        word = "more" if points > 0 else "less"
        return f"{abs(points):.1f} points {word} than {who}"
    if metric.show(value) == metric.show(other):
        return f"the same as {who}"
    return f"{'lower' if value < other else 'higher'} than with {who} ({number(other)})"


def _best_baseline(run: RunFolder, metric: Metric) -> tuple[str, float] | None:
    plain = [one for one in run.baselines.values() if not one.summary["method"]["clustered"]]
    simple = [(title_of(one.summary), metric.of(one.summary)) for one in plain]
    known = [(name, value) for name, value in simple if value is not None]
    if not known:
        return None
    pick = max if metric.accuracy else min
    return pick(known, key=lambda pair: pair[1])


def _against(metric: Metric, value: float | None, best: tuple[str, float] | None) -> str:
    if best is None or value is None:
        return ""
    if metric.accuracy:
        return f"{100 * (value - best[1]):+.1f} points against {best[0]}".replace("-", "−")
    return f"{best[0]}: {number(best[1])}"


def _tested(summary: dict[str, Any]) -> str:
    tested = summary.get("test_clients")
    return "" if not tested or tested == summary["clients"] else f"{count(tested, 'client')} tested"


def _both_ways(summary: dict[str, Any]) -> str:
    return f"{size_of(summary['bytes_down'])} down, {size_of(summary['bytes_up'])} up"
