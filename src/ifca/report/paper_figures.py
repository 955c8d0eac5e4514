"""Figures of the paper's experiments, from their lines and rows; PNG to look at, PDF to print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ifca.report.figures import COLOURS
from ifca.report.paper_tables import name_of
from ifca.report.theory_figures import theory_figure

Row = dict[str, Any]
Line = dict[str, Any]
STYLE = {"ifca": 0, "ifca-plain": 5, "global": 2, "local": 3, "local-100": 4, "oneshot": 1}


def write_figure(folder: Path, summary: dict[str, Any], lines: list[Line]) -> list[Path]:
    """NAME.png and NAME.pdf in the folder; nothing where there are no rows yet."""
    name, rows = summary["experiment"], summary["rows"]
    if not rows:
        return []
    figure = FIGURES[name.removesuffix(name[-1]) if name.startswith("synthetic-") else name](rows, lines)
    FigureCanvasAgg(figure)
    files = [folder / f"{name}.png", folder / f"{name}.pdf"]
    figure.savefig(files[0], dpi=150)
    figure.savefig(files[1], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return files


def accuracy_figure(rows: list[Row], lines: list[Line], metric: str = "test_accuracy") -> Figure:
    """Accuracy by setting with the paper's numbers beside it, and by round in the last setting."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    mine = [row for row in rows if row["metric"] == metric]
    settings = list(dict.fromkeys(row["setting"] for row in mine))
    algorithms = list(dict.fromkeys(row["algorithm"] for row in mine))
    for place, algorithm in enumerate(algorithms):
        some = [row for row in mine if row["algorithm"] == algorithm]
        x = np.array([settings.index(row["setting"]) for row in some]) + _shift(place, len(algorithms))
        kind = {"color": _colour(algorithm), "label": name_of(algorithm), "capsize": 3}
        left.errorbar(x, [row["mean"] for row in some], [row["std"] for row in some], fmt="o", **kind)
        known = [(at, row) for at, row in zip(x, some, strict=True) if row["paper_mean"] is not None]
        left.errorbar(
            [at for at, _ in known],
            [row["paper_mean"] for _, row in known],
            [row["paper_std"] or 0 for _, row in known],
            fmt="D",
            color=_colour(algorithm),
            markerfacecolor="white",
            alpha=0.6,
            capsize=3,
        )
    if any(row["paper_mean"] is not None for row in mine):
        left.plot([], [], "D", color="grey", markerfacecolor="white", label="the paper's")
    left.set_xticks(range(len(settings)), settings)
    rule = ", train rule" if "train_rule" in metric else ""
    left.set(ylabel=f"test accuracy (%){rule}", title="Last round, mean ± std over seeds")
    left.legend(fontsize=8)
    _by_round(right, lines)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    return figure


def _by_round(axes: Axes, lines: list[Line]) -> None:
    """Every seed's curve in the setting that has the most algorithms, the last of them."""
    traced = [line for line in lines if line.get("accuracy_by_round")]
    count = {
        s: len({x["algorithm"] for x in traced if x["setting"] == s}) for s in (x["setting"] for x in traced)
    }
    if not count:
        axes.text(0.5, 0.5, "no curves", ha="center", transform=axes.transAxes)
        return
    setting = [s for s in count if count[s] == max(count.values())][-1]
    named = set()
    for line in traced:
        if line["setting"] == setting:
            x, y = zip(*line["accuracy_by_round"], strict=True)
            label = None if line["algorithm"] in named else name_of(line["algorithm"])
            named.add(line["algorithm"])
            accuracy = [100 * a for a in y]
            axes.plot(x, accuracy, color=_colour(line["algorithm"]), label=label, alpha=0.7, linewidth=1.2)
    axes.set(xlabel="round", ylabel="test accuracy (%), paper's rule", title=f"{setting}, every seed")
    axes.legend(fontsize=8)


def success_figure(rows: list[Row], _lines: list[Line]) -> Figure:
    """Success against R or m: a curve for each sigma or n, with 95% intervals."""
    figure = Figure(figsize=(8.5, 4.2), layout="constrained")
    axes = figure.subplots()
    curves: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        curves.setdefault((row["algorithm"], row["setting"].split(" ")[0]), []).append(row)
    plain = [curve for algorithm, curve in curves if algorithm == "ifca-plain"]
    wide = max(_last_number(row) for row in rows)
    for place, ((algorithm, curve), some) in enumerate(
        sorted(curves.items(), key=lambda one: one[0][0] == "ifca")
    ):
        ours = algorithm == "ifca"
        colour = "black" if ours else COLOURS[plain.index(curve) % len(COLOURS)]
        x = [_last_number(row) + 0.006 * wide * (place - len(plain) / 2) for row in some]  # bars side by side
        y = np.array([row["mean"] for row in some]) / 100
        low, high = (np.array([row["interval"][end] for row in some]) / 100 for end in (0, 1))
        label = f"{curve}, IFCA (default),\none start and step" if ours else curve
        error = [np.maximum(0, y - low), np.maximum(0, high - y)]
        axes.errorbar(x, y, error, fmt="s--" if ours else "o-", color=colour, label=label, capsize=3)
    axis = rows[0]["setting"].split(" ")[-1].split("=")[0]
    axes.set(xlabel=axis, ylabel="success probability", ylim=(-0.05, 1.05))
    figure.legend(
        loc="outside right upper",
        fontsize=8,
        title="plain IFCA, any of\nseveral starts and steps",
        title_fontsize=8,
    )
    axes.grid(alpha=0.3)
    return figure


def identity_figure(_rows: list[Row], lines: list[Line]) -> Figure:
    """Share of clients in the right cluster by round: a panel for each setting, a line for each seed."""
    settings = list(dict.fromkeys(line["setting"] for line in lines))
    figure = Figure(figsize=(3.2 * len(settings) + 0.8, 3.4), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(settings), sharey=True))
    for axes, setting in zip(panels, settings, strict=True):
        named = set()
        for line in sorted(
            (x for x in lines if x["setting"] == setting), key=lambda x: x["algorithm"] == "ifca"
        ):
            right = [100 * share for share in line["cluster_accuracy_by_round"]]
            label = None if line["algorithm"] in named else name_of(line["algorithm"])
            named.add(line["algorithm"])
            colour = _colour(line["algorithm"])
            axes.plot(range(1, len(right) + 1), right, color=colour, alpha=0.8, label=label, linewidth=1.5)
        axes.set(xlabel="round", title=setting.replace("rotated-", "").replace(" ", "\n", 1), ylim=(0, 103))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("clients in the right cluster (%)")
    panels[0].legend(fontsize=8, loc="lower right")
    return figure


def found_figure(rows: list[Row], _lines: list[Line]) -> Figure:
    """Share of seeds with all clusters right, with 95% intervals."""
    mine = [row for row in rows if row["metric"] == "all_right"]
    settings = list(dict.fromkeys(row["setting"] for row in mine))
    figure = Figure(figsize=(8, 1.2 + 0.45 * len(mine)), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(mine):
        low, high = row["interval"]
        error = [[max(0, row["mean"] - low)], [max(0, high - row["mean"])]]
        colour = COLOURS[settings.index(row["setting"])]
        axes.barh(place, row["mean"], color=colour, xerr=error, capsize=3, alpha=0.85)
    labels = [f"{row['setting']}: {name_of(row['algorithm'])}" for row in mine]
    axes.set_yticks(range(len(mine)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="seeds with every client in its true cluster (%), 95% intervals", xlim=(0, 103))
    axes.grid(alpha=0.3, axis="x")
    return figure


def bytes_figure(_rows: list[Row], lines: list[Line]) -> Figure:
    """Test accuracy against bytes, mean over seeds; a panel for each algorithm."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    settings = list(dict.fromkeys(line["setting"] for line in lines))
    for axes, algorithm in zip(panels, ("ifca", "ifca-plain"), strict=True):
        for place, setting in enumerate(settings):
            some = [x for x in lines if x["setting"] == setting and x["algorithm"] in (algorithm, "global")]
            if some:
                curve = np.mean([line["curve"] for line in some], axis=0)  # [rounds, 2]
                colour = COLOURS[place % len(COLOURS)]
                axes.plot(curve[:, 0] / 1e6, 100 * curve[:, 1], color=colour, label=setting, linewidth=1.8)
        axes.set(xlabel="MB, all clients, both ways", title=name_of(algorithm), xscale="log")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("test accuracy (%), mean over seeds")
    panels[0].legend(fontsize=8)
    return figure


def _last_number(row: Row) -> float:
    return float(row["setting"].split("=")[-1])


def _shift(place: int, of: int) -> float:
    return 0.12 * (place - (of - 1) / 2)


def _colour(algorithm: str) -> str:
    return COLOURS[STYLE.get(algorithm, 6)]


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
}
