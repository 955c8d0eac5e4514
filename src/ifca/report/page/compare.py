"""Several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ifca.report.intervals import WHICH
from ifca.report.page.all_numbers import side_by_side
from ifca.report.page.costs import flat
from ifca.report.page.learning import over_rounds
from ifca.report.page.metric import metric_of
from ifca.report.page.parts import Section, figure, paragraph, table
from ifca.report.page.ranking import bar_of, ranking
from ifca.report.read_run import RunFolder


def labels(runs: Sequence[RunFolder]) -> list[str]:
    """The folders' names, as long as they must be to differ."""
    parts = [run.path.resolve().parts for run in runs]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{'/'.join(part)} ({i})" for i, part in enumerate(parts, 1)]


def comparison(runs: Sequence[RunFolder], names: Sequence[str]) -> list[Section]:
    """What differs, in results and in settings."""
    pairs = list(zip(names, runs, strict=True))
    metric = metric_of(*runs)
    better = max if metric.accuracy else min
    values = [(metric.of(run.summary) or 0.0, name) for name, run in pairs]
    best = better(values)
    sentence = f"{metric.name.capitalize()} of each run; {metric.rule}. "
    sentence += f"Best is {best[1]} with {metric.show(best[0])}."
    if unlike := _unlike(runs, metric.accuracy):
        sentence += f" The runs differ in {unlike}, so these numbers do not measure the same thing."
    bars = [bar_of(run, metric, name, name == best[1]) for name, run in pairs]
    bars.sort(key=lambda bar: bar.value, reverse=metric.accuracy)
    title = f"{metric.name.capitalize()} of {len(bars)} runs"
    drawn = ranking(bars, title, metric)
    result = figure(drawn, f"{sentence} {WHICH}", title) + side_by_side(pairs)
    found = [
        Section("compared", "Side by side", result),
        Section("together", "Round by round", over_rounds(pairs, equals=True)),
    ]
    return [*found, Section("differences", "What was set differently", _differences(pairs))]


def _unlike(runs: Sequence[RunFolder], accuracy: bool) -> str:
    """What makes the runs' numbers incomparable: other data, or another loss where losses are compared."""
    configs = [run.summary.get("config") or {} for run in runs]
    found = ["data"] if any(one.get("data") != configs[0].get("data") for one in configs) else []
    losses = {(one.get("model") or {}).get("loss") for one in configs}
    return " and ".join(found + (["loss"] if len(losses) > 1 and not accuracy else []))


def _differences(pairs: Sequence[tuple[str, RunFolder]]) -> Markup:
    configs = [flat(run.summary.get("config") or {}) for _, run in pairs]
    keys = sorted({key for config in configs for key in config})
    rows = [[key, *[config.get(key, "not set") for config in configs]] for key in keys]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    if not rows:
        return paragraph("All settings are the same.")
    heads = ["setting", *[name for name, _ in pairs]]
    return table(heads, rows, caption="Settings that differ", words=tuple(range(len(heads))))
