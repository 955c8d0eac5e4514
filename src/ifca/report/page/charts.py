"""Lines, columns and layers over rounds, as HTML with inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from ifca.report.page.axes import SIZE, Ticks, chosen, nice, plot, round_ticks

POINTS = 400  # of a line at most
Show = Callable[[float], str]


@dataclass(frozen=True)
class Line:
    """One line of a chart; None where nothing is known."""

    name: str
    y: Sequence[float | None]
    colour: str
    front: bool = True  # else thin and dashed


def line_chart(
    x: Sequence[int],
    lines: Sequence[Line],
    *,
    show: Show,
    label: str,
    y_title: str,
    tick: Show | None = None,
    log: bool = False,
    zero: bool = False,
    ceiling: float | None = None,
) -> Markup:
    """Lines over rounds, with a read-out for mouse, finger and arrow keys. label: the text alternative."""
    keep = chosen(len(x), POINTS)
    rounds = [x[i] for i in keep]
    cut = [Line(one.name, [one.y[i] for i in keep], one.colour, one.front) for one in lines]
    values = [value for line in cut for value in line.y if value is not None and math.isfinite(value)]
    if not values:
        return Markup("")
    low, high, ticks = _range([*values, 0.0] if zero else values, ceiling, log)

    def up(value: float) -> float:
        if log:
            value, a, b = math.log10(max(value, low)), math.log10(low), math.log10(high)
        else:
            a, b = low, high
        return min(1.0, max(0.0, (value - a) / (b - a)))

    across = _across(rounds)
    shapes = "".join(_path(line, across, up) for line in sorted(cut, key=lambda line: line.front))
    data = {
        "x": rounds,
        "series": [
            {"name": one.name, "colour": one.colour, "text": [_text(v, show) for v in one.y]} for one in cut
        ],
        "at": [round(a, 4) for a in across],
    }
    y_ticks = [(up(value), (tick or show)(value)) for value in ticks]
    return plot(Markup(shapes), label=label, x=round_ticks(rounds), y=y_ticks, y_title=y_title, data=data)


def bars(
    heights: Sequence[float],
    *,
    x: Ticks,
    show: Show,
    label: str,
    y_title: str,
    colours: Sequence[str] | None = None,
    names: Sequence[str] = (),
    integer: bool = True,
    height: str = "short",
) -> Markup:
    """Columns side by side; names: what each says when pointed at."""
    top = max([*heights, 0]) or 1
    ticks = [value for value in nice(0, top, 4, integer=integer) if value >= 0]
    high, width = max(top, ticks[-1]), SIZE / max(1, len(heights))
    gap = 0.12 * width if len(heights) <= 80 else 0
    shapes = Markup("")
    for i, value in enumerate(heights):
        tall = SIZE * value / high
        fill = colours[i] if colours else "var(--accent)"
        named = Markup("<title>{}</title>").format(names[i]) if names else ""
        shapes += Markup(
            '<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="{}">{}</rect>'
        ).format(i * width + gap, SIZE - tall, width - 2 * gap, tall, fill, named)
    return plot(
        shapes, label=label, x=x, y=[(v / high, show(v)) for v in ticks], y_title=y_title, height=height
    )


def areas(
    x: Sequence[int], layers: Sequence[tuple[str, Sequence[float]]], *, label: str, y_title: str
) -> Markup:
    """Layers on top of each other, a cluster each: (colour, height at each x)."""
    keep = chosen(len(x), POINTS)
    rounds = [x[i] for i in keep]
    stack = np.cumsum([[0.0] * len(keep), *[[heights[i] for i in keep] for _, heights in layers]], axis=0)
    top = float(stack[-1].max()) or 1.0
    across = [SIZE * a for a in _across(rounds)]
    shapes = Markup("")
    for (fill, _), below, above in zip(layers, stack[:-1], stack[1:], strict=True):
        there = [f"{a:.1f},{SIZE * (1 - h / top):.1f}" for a, h in zip(across, above, strict=True)]
        back = [f"{a:.1f},{SIZE * (1 - h / top):.1f}" for a, h in zip(across, below, strict=True)]
        points = " ".join([*there, *reversed(back)])
        shapes += Markup('<polygon points="{}" fill="{}" class="layer"/>').format(points, fill)
    ticks = [(value / top, f"{value:,.0f}") for value in nice(0, top, 4, integer=True) if 0 <= value <= top]
    data = {
        "x": rounds,
        "series": [
            {"name": f"cluster {j}", "colour": fill, "text": [f"{heights[i]:,.0f}" for i in keep]}
            for j, (fill, heights) in enumerate(layers)
            if any(heights)
        ],
        "at": [round(a / SIZE, 4) for a in across],
    }
    return plot(
        shapes, label=label, x=round_ticks(rounds), y=ticks, y_title=y_title, height="short", data=data
    )


def _range(values: list[float], ceiling: float | None, log: bool) -> tuple[float, float, list[float]]:
    """Both ends of an axis, and its ticks; no number here is below 0."""
    low, high = min(values), max(values)
    if log:
        a, b = math.floor(math.log10(low)), math.ceil(math.log10(high))
        b = max(b, a + 1)
        return 10.0**a, 10.0**b, [10.0**e for e in range(a, b + 1)]
    ticks = [
        tick for tick in nice(low, high) if tick >= min(0.0, low) and (ceiling is None or tick <= ceiling)
    ]
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    return low, high if high > low else low + 1, ticks


def _across(rounds: Sequence[int]) -> list[float]:
    if len(rounds) < 2:
        return [0.5] * len(rounds)
    return [(value - rounds[0]) / (rounds[-1] - rounds[0]) for value in rounds]


def _path(line: Line, across: list[float], up: Callable[[float], float]) -> str:
    """Pieces of a line between gaps; a lonely point is drawn as a short dash."""
    known = [(i, value) for i, value in enumerate(line.y) if value is not None]
    steps = sorted(b - a for (a, _), (b, _) in pairwise(known))
    usual = (
        steps[len(steps) // 2] if steps else 1
    )  # where tests are rare, their points are joined all the same
    pieces: list[list[str]] = [[]]
    for place, (i, value) in enumerate(known):
        if place and i - known[place - 1][0] > 2 * usual:
            pieces.append([])
        pieces[-1].append(f"{SIZE * across[i]:.1f},{SIZE * (1 - up(value)):.1f}")
    for piece in pieces:
        if len(piece) == 1:
            a, b = piece[0].split(",")
            piece[:] = [f"{float(a) - 4:.1f},{b}", f"{float(a) + 4:.1f},{b}"]
    shape = "".join("M" + "L".join(piece) for piece in pieces if piece)
    return f'<path d="{shape}" class="line{"" if line.front else " behind"}" stroke="{line.colour}"/>'


def _text(value: float | None, show: Show) -> str:
    return "–" if value is None else show(value)
