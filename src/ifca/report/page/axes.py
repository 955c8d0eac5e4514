"""What every figure of the page has: an SVG that stretches, around it labels as text that keeps its size."""

from __future__ import annotations

import json
from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

SIZE = 1000  # both sides of every SVG, in units of its own
Ticks = list[tuple[float, str]]
"""Place from 0 to 1, and what stands there."""


def chosen(count: int, most: int) -> list[int]:
    """Evenly spaced places among so many, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def nice(low: float, high: float, bins: int = 5, *, integer: bool = False) -> list[float]:
    """Round numbers that span a range."""
    if high <= low:
        low, high = low - (abs(low) * 0.05 or 0.5), high + (abs(high) * 0.05 or 0.5)
    found = MaxNLocator(bins, steps=[1, 2, 2.5, 5, 10], integer=integer).tick_values(low, high)
    return [float(value) for value in found]


def plot(
    shapes: Markup,
    *,
    label: str,
    x: Ticks,
    y: Ticks,
    y_title: str,
    height: str = "tall",
    data: object | None = None,
    right: bool = False,
    grid: bool = True,
) -> Markup:
    """Shapes with their axes."""
    levels = Markup("").join(
        Markup('<line x1="0" x2="{0}" y1="{1:.1f}" y2="{1:.1f}" class="grid"/>').format(SIZE, SIZE * (1 - at))
        for at, _ in (y if grid else [])
    )
    svg = Markup(
        '<svg viewBox="0 0 {0} {0}" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        "{1}{2}</svg>"
    ).format(SIZE, levels, shapes)
    kind = f"{height} right" if right else height
    return _frame(svg, label, x, y, y_title, kind, data)


def picture(
    source: str,
    *,
    label: str,
    x: Ticks,
    y: Ticks,
    y_title: str,
    height: int,
    edges: Sequence[float] = (),
    data: object | None = None,
) -> Markup:
    """An image with labels around it; edges: where a line crosses it, from the top.

    data: what its rows and columns are, for the read-out (map.js).
    """
    lines = Markup("").join(
        Markup('<i class="edge" style="top:{:.2f}%"></i>').format(100 * edge) for edge in edges
    )
    image = Markup('<img src="{}" alt="" style="height:{}px">{}').format(source, height, lines)
    return _frame(image, label, x, spread(y), y_title, "picture", data, "map")


def legend(entries: Sequence[tuple[str, str]], *, dashed: Sequence[bool] = ()) -> Markup:
    """Colours and what they stand for."""
    items = Markup("").join(
        Markup('<li><i class="key{}" style="--key:{}"></i>{}</li>').format(
            " dashed" if i < len(dashed) and dashed[i] else "", fill, name
        )
        for i, (fill, name) in enumerate(entries)
    )
    return Markup('<ul class="legend">{}</ul>').format(items)


def round_ticks(rounds: Sequence[int]) -> Ticks:
    """A few rounds under an axis."""
    if len(rounds) < 2:
        return [(0.5, str(value)) for value in rounds]
    low, high = rounds[0], rounds[-1]
    inner = [v for v in nice(low, high, 6, integer=True) if low < v < high]
    kept = [v for v in inner if min(v - low, high - v) > 0.07 * (high - low)]
    return [((v - low) / (high - low), f"{v:.0f}") for v in [low, *kept, high]]


def spread(ticks: Ticks, least: float = 0.045) -> Ticks:
    """Labels moved apart where they would overlap."""
    out: Ticks = []
    for at, text in sorted(ticks):
        out.append((max(at, out[-1][0] + least) if out else at, text))
    over = out[-1][0] - 1 if out and out[-1][0] > 1 else 0
    return [(max(0.0, at - over), text) for at, text in out]


def _frame(
    inner: Markup,
    label: str,
    x: Ticks,
    y: Ticks,
    y_title: str,
    kind: str,
    data: object | None = None,
    read: str = "chart",
) -> Markup:
    """read: which script reads the data out, that of charts or that of maps."""
    rows = Markup("").join(
        Markup('<span style="bottom:{:.2f}%">{}</span>').format(100 * at, text) for at, text in y
    )
    columns = Markup("").join(
        Markup('<span style="left:{:.2f}%"{}>{}</span>').format(
            100 * at, Markup(' class="first"' if at < 0.05 else ' class="last"' if at > 0.95 else ""), text
        )
        for at, text in x
    )
    width = max((len(text) for _, text in y), default=0)
    attributes = Markup("")
    if data is not None:
        content = json.dumps(data, separators=(",", ":"))
        attributes = Markup(' tabindex="0" data-chart="{}"').format(content)
        if read == "map":
            attributes = Markup(' data-map="{}"').format(content)
    return Markup(
        '<div class="plot {}" role="img" aria-label="{}"{} style="--label:{}ch">'
        '{}<div class="rows" aria-hidden="true">{}</div><div class="canvas">{}</div>'
        '<div class="columns" aria-hidden="true">{}</div></div>'
    ).format(
        kind,
        label,
        attributes,
        width,
        Markup('<p class="axis" aria-hidden="true">{}</p>').format(y_title) if y_title else "",
        rows,
        inner,
        columns,
    )
