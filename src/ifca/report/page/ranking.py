"""Ways to train, or runs, as horizontal bars with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ifca.core.estimates import Estimate
from ifca.report.page.metric import Metric
from ifca.report.read_run import RunFolder


@dataclass(frozen=True)
class Bar:
    """One way to train in a ranking."""

    name: str
    value: float
    text: str
    mine: bool  # whether it is the run itself
    found: Estimate | None = None


def bar_of(run: RunFolder, metric: Metric, name: str, mine: bool) -> Bar:
    """A run in a ranking."""
    value, found = metric.of(run.summary) or 0.0, metric.estimate(metric.scores(run))
    return Bar(name, value, metric.show(value), mine, found)


def ranking(bars: Sequence[Bar], label: str, metric: Metric) -> Markup:
    """Horizontal bars with intervals; those of shares end at 100 %."""
    highest = [bar.value if bar.found is None else bar.found.high or bar.value for bar in bars]
    top = 1.0 if metric.accuracy else max(highest, default=1.0) or 1.0
    rows = Markup("")
    for bar in bars:
        told = metric.range(bar.found)
        whisker = Markup("")
        if bar.found is not None and bar.found.low is not None and bar.found.high is not None:
            low, high = (100 * max(0.0, end) / top for end in (bar.found.low, bar.found.high))
            whisker = Markup('<b style="left:{:.2f}%;width:{:.2f}%"></b>').format(low, high - low)
        rows += Markup(
            '<div class="bar{}" title="{}"><span class="who">{}</span><span class="track">'
            '<i style="width:{:.2f}%"></i>{}</span><span class="value">{}<small>{}</small></span></div>'
        ).format(
            " mine" if bar.mine else "",
            f"{bar.name}: {bar.text}" + (f", 95 % interval {told}" if told else ""),
            bar.name,
            100 * max(0.0, bar.value) / top,
            whisker,
            bar.text,
            told,
        )
    spoken = f"{label}: " + ", ".join(f"{bar.name} {bar.text}" for bar in bars)
    return Markup('<div class="ranking" role="img" aria-label="{}">{}</div>').format(spoken, rows)
