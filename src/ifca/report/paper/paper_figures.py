"""Figures of the paper's experiments, from their lines and rows; PNG to look at, PDF to print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ifca.core.recipe import Recipe
from ifca.report.paper.accuracy_figure import accuracy_figure
from ifca.report.paper.bytes_figure import bytes_figure
from ifca.report.paper.paper_style import INKS, PAGE, WIDTH, Line, Row, stroke, symbols
from ifca.report.paper.paper_tables import name_of
from ifca.report.paper.success_figure import success_figure
from ifca.report.paper.theory_figures import theory_figure


def write_figure(folder: Path, summary: dict[str, Any], lines: list[Line]) -> list[Path]:
    """NAME.png and NAME.pdf in the folder; nothing where there are no rows yet.

    lines: all units of the experiment; those that diverged are not drawn.
    """
    name, rows = summary["experiment"], summary["rows"]
    lines = [line for line in lines if "diverged" not in line]
    if not rows:
        return []
    files = [folder / f"{name}.png", folder / f"{name}.pdf"]
    with rc_context(PAGE):
        figure = FIGURES[name.removesuffix(name[-1]) if name.startswith("synthetic-") else name](rows, lines)
        FigureCanvasAgg(figure)
        figure.savefig(files[0], dpi=200)
        figure.savefig(files[1], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return files


def identity_figure(_rows: list[Row], lines: list[Line]) -> Figure:
    """Share of clients in the right cluster by round: a panel for each setting, a line for each seed."""
    settings = list(dict.fromkeys(line["setting"] for line in lines))
    deep = (len(settings) + 1) // 2
    figure = Figure(figsize=(WIDTH, 0.4 + 2.3 * deep), layout="constrained")
    panels = np.ravel(figure.subplots(deep, min(2, len(settings)), sharey=True, squeeze=False))
    for axes, setting in zip(panels, settings, strict=False):
        named = set()
        for line in sorted(
            (x for x in lines if x["setting"] == setting), key=lambda x: x["algorithm"] != Recipe.algorithm
        ):
            algorithm = line["algorithm"]
            right = [100 * share for share in line["cluster_accuracy_by_round"]]
            label = None if algorithm in named else name_of(algorithm)
            named.add(algorithm)
            axes.plot(range(1, len(right) + 1), right, label=label, **stroke(algorithm))
        axes.set(xlabel="round", title=symbols(setting), ylim=(0, 103))
    for axes in panels[len(settings) :]:
        axes.remove()
    figure.supylabel("clients in the right cluster (%), every seed", fontsize=8.5)
    panels[0].legend(loc="lower right")
    return figure


def found_figure(
    rows: list[Row],
    _lines: list[Line],
    metric: str = "all_right",
    label: str = "seeds with every client in its true cluster (%), 95% intervals",
) -> Figure:
    """Share of seeds with all clusters right, with 95% intervals; a panel for each setting."""
    mine = [row for row in rows if row["metric"] == metric]
    settings = list(dict.fromkeys(row["setting"] for row in mine))
    bars = [[row for row in mine if row["setting"] == setting] for setting in settings]
    figure = Figure(figsize=(WIDTH, 0.4 + 0.3 * len(settings) + 0.27 * len(mine)), layout="constrained")
    heights = [len(some) for some in bars]
    panels = np.ravel(figure.subplots(len(settings), 1, sharex=True, squeeze=False, height_ratios=heights))
    for axes, setting, some in zip(panels, settings, bars, strict=True):
        for place, row in enumerate(some):
            low, high = row["interval"]
            error = [[max(0, row["mean"] - low)], [max(0, high - row["mean"])]]
            axes.barh(place, row["mean"], 0.6, color=INKS[4], xerr=error)
        axes.set_yticks(range(len(some)), [name_of(row["algorithm"]) for row in some])
        axes.invert_yaxis()
        axes.set(title=symbols(setting), xlim=(0, 103))
        axes.grid(axis="y", visible=False)
    panels[-1].set_xlabel(label)
    return figure


FIGURES: dict[str, Callable[[list[Row], list[Line]], Figure]] = {
    "rotated-mnist": accuracy_figure,
    "rotated-cifar": accuracy_figure,
    "femnist": lambda rows, lines: accuracy_figure(rows, lines, "test_accuracy_train_rule"),
    "synthetic-": success_figure,
    "cluster-accuracy": identity_figure,
    "theory-linear": theory_figure,
    "theory-convex": theory_figure,
    "initialisation": found_figure,
    "communication": bytes_figure,
    "collapse": lambda rows, lines: found_figure(
        rows, lines, "success", "seeds that succeed (%), 95% intervals"
    ),
}
