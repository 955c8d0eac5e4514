"""The figure of a synthetic panel: success probability against the separation or the number of clients."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from ifca.core.recipe import Recipe
from ifca.report.paper.paper_style import DASHES, INKS, MARKS, WIDTH, Line, Row, symbols

AXES = {"R": "separation $R$", "m": "number of clients $m$"}
LEGENDS: dict[str, tuple[str, Any]] = {
    "ifca-plain": ("plain IFCA, any of\nseveral starts and steps", "outside right upper"),
    "ifca": ("IFCA (default),\none start and step", "outside right center"),
}
APART = 0.006  # of the axis: intervals stand side by side


def success_figure(rows: list[Row], _lines: list[Line]) -> Figure:
    """A curve for each sigma or n, with 95% intervals; a legend for each algorithm."""
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    axes = figure.subplots()
    measured = sorted({_last_number(row) for row in rows})
    shown = [name for name in LEGENDS if any(row["algorithm"] == name for row in rows)]
    place, curves = 0, len({(row["algorithm"], row["setting"].split(" ")[0]) for row in rows})
    for algorithm in shown:
        mine = [row for row in rows if row["algorithm"] == algorithm]
        drawn: list[Any] = []  # containers, which a legend takes as artists
        for curve in dict.fromkeys(row["setting"].split(" ")[0] for row in mine):
            some = [row for row in mine if row["setting"].split(" ")[0] == curve]
            shift = APART * measured[-1] * (place - (curves - 1) / 2)
            drawn.append(_curve(axes, some, place, shift, algorithm == Recipe.algorithm))
            drawn[-1].set_label(symbols(curve))
            place += 1
        title, where = LEGENDS[algorithm]
        figure.legend(handles=drawn, loc=where, title=title)
    axes.set_xticks(measured, [f"{value:g}" for value in measured])
    axis = rows[0]["setting"].split(" ")[-1].split("=")[0]
    axes.set(xlabel=AXES[axis], ylabel="success probability", ylim=(-0.03, 1.05))
    return figure


def _curve(axes: Axes, rows: list[Row], place: int, shift: float, default: bool) -> ErrorbarContainer:
    """The default algorithm's in black and hollow: it lies on one of the others where both succeed."""
    x = np.array([_last_number(row) for row in rows]) + shift
    y, low, high = (
        np.array(values) / 100
        for values in zip(*[(row["mean"], *row["interval"]) for row in rows], strict=True)
    )
    error = [np.maximum(0, y - low), np.maximum(0, high - y)]
    if default:
        return axes.errorbar(x, y, error, fmt="D--", color="black", markerfacecolor="white")
    return axes.errorbar(x, y, error, marker=MARKS[place], linestyle=DASHES[place], color=INKS[place])


def _last_number(row: Row) -> float:
    return float(row["setting"].split("=")[-1])
