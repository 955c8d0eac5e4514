"""Which method is best: the verdict, a row of dots with intervals for each method, and the numbers."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from ifca.report.page.axes import nice
from ifca.report.page.parts import Section, figure, paragraph, table
from ifca.report.read_run import RunFolder
from ifca.report.standings_table import standings_table
from ifca.report.words import title_of
from ifca.runs.verdict import gap, parts

REACH = 3  # times the farthest end of a tie: what is drawn; who is farther behind is at the edge
Row = dict[str, Any]


def best(run: RunFolder) -> Section | None:
    """The section; None where methods were not compared. With one seed only the verdict is not folded."""
    found = run.summary.get("comparison")
    if not found:
        return None
    title, heads, rows = standings_table(found)
    body = Markup("")
    if found["best"]:
        unit = "points" if found["higher_is_better"] else "%"
        first = found["table"][0]["title"]
        drawn = f"How far each method is behind {first}, in {unit}"
        small = "Small dots are seeds, large ones their means. " if len(found["seeds"]) > 1 else ""
        caption = f"{small}A line that crosses the one at 0 is a tie with {first}. {found['basis']}"
        body += figure(_dots(found, drawn), caption, drawn)
    body += table(heads, rows, caption=title, words=(0, 4))
    if len(found["seeds"]) == 1:
        return Section("best", "Which method is best", body, found["verdict"])
    which = f"All other sections are about {title_of(run.summary)} with seed {found['seeds'][0]}."
    return Section("best", "Which method is best", paragraph(f"{found['verdict']} {which}") + body)


def _dots(found: Row, label: str) -> Markup:
    """A row per method: small dots for seeds, a large one for their mean, a line for the interval."""
    value = found["table"][0]["value"]
    spans = [parts(found, row["behind"], value) for row in found["table"] if row["behind"]]
    low, high = _scale(spans)
    ticks = [tick for tick in nice(low, high, 4) if low <= tick <= high]

    def at(behind: float) -> float:
        return 100 * (min(high, max(low, behind)) - low) / (high - low)

    rows = Markup("").join(_row(found, row, at, high) for row in found["table"])
    labels = Markup("").join(
        Markup('<span style="left:{:.2f}%">{:g}</span>').format(at(tick), round(tick, 6)) for tick in ticks
    )
    axis = Markup(
        '<div class="bar ticks" aria-hidden="true"><span></span><span class="track">{}</span></div>'
    )
    told = [f"{row['title']} {gap(found, row['behind'], value)}" for row in found["table"] if row["behind"]]
    return Markup('<div class="ranking dots" role="img" aria-label="{}">{}{}</div>').format(
        f"{label}: {', '.join(told)}", rows, axis.format(labels)
    )


def _scale(spans: list[tuple[float, float | None, float | None]]) -> tuple[float, float]:
    """Both ends of the axis: around all ties; of the others, those that fit beside them."""
    reaches = [(low or 0.0, max(by, high or by)) for by, low, high in spans]
    least = min(0.0, *[low for low, _ in reaches])
    ties = [high for low, high in reaches if low <= 0]
    most = REACH * max([*ties, -least]) if ties else max(high for _, high in reaches)
    high = max([high for _, high in reaches if high <= most], default=most)
    reach = (high - least) or 1.0
    return least - 0.04 * reach, high + 0.04 * reach


def _row(found: Row, row: Row, at: Any, high: float) -> Markup:
    value, pair = found["table"][0]["value"], row["behind"]
    zero = Markup('<s style="left:{:.2f}%"></s>').format(at(0.0))
    if pair is None:
        inside, told = Markup('<i style="left:{:.2f}%"></i>').format(at(0.0)), "0"
    else:
        by, low, end = parts(found, pair, value)
        scale = by / pair["by"] if pair["by"] else 0.0
        seeds = [scale * one for one in pair["by_seed"]] if len(pair["by_seed"]) > 1 else []
        inside = Markup("").join(
            Markup('<u style="left:{:.2f}%"></u>').format(at(one)) for one in seeds if one <= high
        )
        if low is not None and end is not None and low < high:
            inside += Markup('<b style="left:{:.2f}%;width:{:.2f}%"></b>').format(at(low), at(end) - at(low))
        if by <= high:
            inside += Markup('<i style="left:{:.2f}%"></i>').format(at(by))
        else:
            inside += Markup('<em style="left:{:.2f}%">farther ▸</em>').format(at(high))
        told = gap(found, pair, value)
    text, _, ends = told.partition(" (")
    return Markup(
        '<div class="bar{}" title="{}"><span class="who">{}</span><span class="track">{}{}</span>'
        '<span class="value">{}<small>{}</small></span></div>'
    ).format(
        "" if row["standing"] == "worse" else " mine",
        f"{row['title']}: {told} behind",
        row["title"],
        zero,
        inside,
        text,
        ends.removesuffix(")"),
    )
