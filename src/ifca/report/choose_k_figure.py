"""The figure of 'ifca choose-k': four measures against k."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ifca.report.palette import COLOURS
from ifca.report.run_figures import write_png
from ifca.report.words import title_of

Row = dict[str, Any]


def write_choice_figure(folder: Path, found: dict[str, Any]) -> Path:
    """choose-k.png in the folder."""
    return write_png(folder / "choose-k.png", choice_figure(found))


def choice_figure(found: dict[str, Any]) -> Figure:
    """Training loss, live clusters, stability and silhouette against k, four panels with one axis of k."""
    rows: list[Row] = found["table"]
    figure = Figure(figsize=(8, 6), layout="constrained")
    (loss, live), (stable, apart) = figure.subplots(2, 2, sharex=True)
    ks = [row["k"] for row in rows]
    spread = [row["train_loss_std"] or 0.0 for row in rows]
    loss.errorbar(
        ks, [row["train_loss"] for row in rows], spread, fmt="o-", color=COLOURS[0], linewidth=2, capsize=4
    )
    loss.set(title="Clients' mean training loss", ylabel="loss, ± std over seeds", ylim=(0, None))
    live.plot(ks, ks, "--", color="grey", label="as many as asked")
    points = [(row["k"], count) for row in rows for count in row["live_clusters"]]
    for place, (k, count) in enumerate(sorted(set(points))):
        size = 20 + 25 * points.count((k, count))
        label = None if place else "found, larger: more seeds"
        live.scatter([k], [count], s=size, color=COLOURS[5], zorder=3, label=label)
    live.set(title="Live clusters", ylabel="clusters with clients", ylim=(0, max(*ks, 1) + 0.5))
    live.yaxis.set_major_locator(MaxNLocator(integer=True))
    live.legend(loc="upper left", fontsize=8)
    _line(stable, rows, "stability", COLOURS[2])
    stable.set(title="Stability over seeds", ylabel="adjusted Rand index", xlabel="k asked")
    _line(apart, rows, "silhouette", COLOURS[3])
    apart.set(title="Silhouette of the clients' losses", ylabel="silhouette", xlabel="k asked")
    for axes in (loss, live, stable, apart):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if found["supported_k"] in ks:
            axes.axvline(found["supported_k"], color="black", linestyle=":", linewidth=1.5, zorder=1)
    drawn = " (dotted line)" if found["supported_k"] in ks else ""
    figure.suptitle(f"{title_of(found)}: clusters that the data supports: {found['supported_k']}{drawn}")
    return figure


def _line(axes: Axes, rows: list[Row], name: str, colour: str) -> None:
    """A measure that is at most 1; k for which it is undefined are left out."""
    known = [(row["k"], row[name]) for row in rows if row[name] is not None]
    if known:
        axes.plot(*zip(*known, strict=True), "o-", color=colour, linewidth=2)
    else:
        axes.text(0.5, 0.5, "undefined", ha="center", transform=axes.transAxes)
    axes.set_ylim(min([0.0, *[value for _, value in known]]) - 0.02, 1.05)
