"""The figure of the paper's tables: accuracy by setting beside the paper's numbers, and by round."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ifca.methods.global_model import GLOBAL
from ifca.report.paper.paper_style import WIDTH, Line, Row, ink, mark, stroke, symbols
from ifca.report.paper.paper_tables import NAMES, name_of

RULES = {"": "", "_train_rule": ", train rule"}
WHAT = {"m": "$m$ clients with $n$ samples each", "k": "number of clusters"}


def accuracy_figure(rows: list[Row], lines: list[Line], metric: str = "test_accuracy") -> Figure:
    """Last round by setting, and every tested round of one setting."""
    mine = [row for row in rows if row["metric"] == metric]
    if len({row["setting"] for row in mine}) > 1:
        figure = Figure(figsize=(WIDTH, 5.8), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=[5, 4])
    else:
        figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
        above, below = figure.subplots(1, 2)
    rule = "_train_rule" if metric.endswith("_train_rule") else ""
    _by_setting(above, mine, RULES[rule])
    _by_round(below, lines, f"accuracy_by_round{rule}", RULES[rule])
    return figure


def _by_setting(axes: Axes, rows: list[Row], rule: str) -> None:
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    present = {s: [row["algorithm"] for row in rows if row["setting"] == s] for s in settings}
    step = min(0.27, 0.8 / max(len(here) for here in present.values()))
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        some = [row for row in rows if row["algorithm"] == algorithm]
        x = []
        for row in some:
            here = present[row["setting"]]
            place = here.index(algorithm) - (len(here) - 1) / 2  # among those that this setting has
            x.append(settings.index(row["setting"]) + step * place)
        _points(axes, np.array(x), some, 0.19 * step)
    handles, labels = axes.get_legend_handles_labels()
    if any(row["paper_mean"] is not None for row in rows):
        handles += axes.plot([], [], "D", color="grey", markerfacecolor="none")
        labels.append("the paper's")
    axes.legend(handles, labels, ncols=1 if len(settings) == 1 else 2)
    axes.set_xticks(range(len(settings)), [symbols(setting) for setting in settings])
    axes.set_xlim(-0.5, len(settings) - 0.5)
    axes.set_xlabel(WHAT.get(settings[0].split("=")[0], "setting"))
    axes.set(ylabel=f"test accuracy (%){rule}", title="Last round, mean ± std over seeds")
    axes.grid(axis="x", visible=False)


def _points(axes: Axes, x: NDArray[np.float64], rows: list[Row], aside: float) -> None:
    """Ours, and where the paper has a number that beside it: hollow, and under ours."""
    algorithm = rows[0]["algorithm"]
    colour = ink(algorithm)
    for place, row in enumerate(rows):
        if row["paper_mean"] is not None:
            kind: dict[str, Any] = {
                "color": colour,
                "markerfacecolor": "none",
                "elinewidth": 0.8,
                "zorder": 2,
            }
            axes.errorbar(x[place] + aside, row["paper_mean"], row["paper_std"] or 0, fmt="D", **kind)
            x[place] -= aside
    mean, std = ([row[key] for row in rows] for key in ("mean", "std"))
    axes.errorbar(x, mean, std, fmt=mark(algorithm), color=colour, label=name_of(algorithm), zorder=3)


def _by_round(axes: Axes, lines: list[Line], curve: str, rule: str) -> None:
    """Every seed's curve in the setting that has the most algorithms, the last of them; global beside it."""
    traced = [line for line in lines if line.get(curve)]
    count = {
        s: len({x["algorithm"] for x in traced if x["setting"] == s}) for s in (x["setting"] for x in traced)
    }
    if not count:
        axes.text(0.5, 0.5, "no curves", ha="center", transform=axes.transAxes)
        return
    setting = [s for s in count if count[s] == max(count.values())][-1]
    title = symbols(setting)
    shown = [line for line in traced if line["setting"] == setting]
    if not any(line["algorithm"] == GLOBAL.name for line in shown):
        beside = [line for line in traced if line["algorithm"] == GLOBAL.name]
        shown, title = shown + beside, title + (" and global" if beside else "")
    named = set()
    for line in sorted(shown, key=lambda line: list(NAMES).index(line["algorithm"])):
        algorithm = line["algorithm"]
        label = None if algorithm in named else name_of(algorithm)
        named.add(algorithm)
        x, y = np.array(line[curve]).T
        axes.plot(x, 100 * y, label=label, **stroke(algorithm))
    axes.set(xlabel="round", ylabel=f"test accuracy (%){rule}", title=f"{title}, every seed")
    axes.legend(loc="lower right")
