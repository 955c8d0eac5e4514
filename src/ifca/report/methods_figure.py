"""The picture of the bench: accuracy relative to the oracle by regime, a dot per method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ifca.report.palette import COLOURS
from ifca.report.paper.paper_style import PAGE, WIDTH

ORACLE = "oracle"
LINEAR = 1.0  # points around the oracle that are drawn to scale; further away logarithmically
LOOKS = {  # method -> colour, marker: the last drawn is on top
    "local": (COLOURS[3], "v"),
    "global": (COLOURS[2], "^"),
    "clove": (COLOURS[7], "P"),
    "oneshot": (COLOURS[1], "s"),
    "oneshot-plain": (COLOURS[6], "X"),
    "best-of-5": (COLOURS[4], "<"),
    "ifca-plain": (COLOURS[5], "D"),
    "ifca": (COLOURS[0], "o"),
}
Row = dict[str, Any]


def write_methods_figure(folder: Path, summary: dict[str, Any]) -> list[Path]:
    """methods.png and methods.pdf in the folder; nothing where there are no rows."""
    rows = [row for row in summary["rows"] if not row["personalised"]]
    if not rows:
        return []
    files = [folder / "methods.png", folder / "methods.pdf"]
    with rc_context(PAGE):
        figure = methods_figure(rows, summary["titles"])
        FigureCanvasAgg(figure)
        figure.savefig(files[0], dpi=200)
        figure.savefig(files[1], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return files


def methods_figure(rows: list[Row], titles: dict[str, str]) -> Figure:
    """Regimes down, points of accuracy beside the oracle's across."""
    regimes = list(dict.fromkeys(row["regime"] for row in rows))
    figure = Figure(figsize=(WIDTH, 1.2 + 0.3 * len(regimes)), layout="constrained")
    axes = figure.subplots()
    beside = {regime: _reference(rows, regime) for regime in regimes}
    for place, (method, (colour, marker)) in enumerate(LOOKS.items()):
        mine = [row for row in rows if row["method"] == method]
        if mine:
            x = [row["accuracy"] - beside[row["regime"]][0] for row in mine]
            aside = 0.09 * (place - (len(LOOKS) - 1) / 2)  # equal methods are seen beside each other
            y = [regimes.index(row["regime"]) + aside for row in mine]
            size = 6 if place == len(LOOKS) - 1 else 4
            axes.plot(x, y, marker, color=colour, markersize=size, label=titles[method], alpha=0.85)
    _scale(axes)
    axes.axvline(0, color="black", linewidth=0.8, zorder=1)
    names = [regime + ("" if beside[regime][1] else " *") for regime in regimes]
    axes.set_yticks(range(len(regimes)), names)
    for line in range(1, len(regimes)):
        axes.axhline(line - 0.5, color="#DDDDDD", linewidth=0.6, zorder=0)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(len(regimes) - 0.5, -0.5)
    star = "" if all(known for _, known in beside.values()) else " (* no oracle: beside the best method)"
    axes.set_xlabel(f"points of accuracy beside the oracle{star}")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _scale(axes: Axes) -> None:
    """To scale near the oracle, logarithmic further away; numbers that a reader knows."""
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=1.5)
    low, high = axes.get_xlim()
    ticks = [t for t in (-100, -50, -20, -10, -5, -2, -1, -0.5, 0, 0.5, 1, 2, 5, 10, 20) if low <= t <= high]
    axes.set_xticks(ticks, minor=False)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))


def _reference(rows: list[Row], regime: str) -> tuple[float, bool]:
    """The oracle's accuracy, or the best of all methods' where there is none; whether it is the oracle's."""
    mine = {row["method"]: row["accuracy"] for row in rows if row["regime"] == regime}
    return (mine[ORACLE], True) if ORACLE in mine else (max(mine.values()), False)
