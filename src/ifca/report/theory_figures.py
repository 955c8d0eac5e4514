"""The figure of the theory experiments: contraction to a floor, floors as power laws, identity errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ifca.report.figures import COLOURS

Row = dict[str, Any]
Line = dict[str, Any]


def theory_figure(rows: list[Row], lines: list[Line]) -> Figure:
    """Distances by round; floors against what is varied; where there are any, identity errors against n'."""
    errors = [line for line in lines if "errors" in line]
    figure = Figure(figsize=(13 if errors else 9, 4), layout="constrained")
    panels = figure.subplots(1, 3 if errors else 2)
    _rounds(panels[0], [line for line in lines if "distance_by_round" in line])
    _floors(panels[1], rows)
    if errors:
        _errors(panels[2], errors)
    for axes in panels:
        axes.grid(alpha=0.3, which="both")
    return figure


def _rounds(axes: Axes, lines: list[Line]) -> None:
    """Of the quantity that is varied first: every seed's curve."""
    varied = lines[0]["setting"].split("=")[0] if lines else ""
    some = [line for line in lines if line["setting"].startswith(f"{varied}=")]
    settings = list(dict.fromkeys(line["setting"] for line in some))
    for place, setting in enumerate(settings):
        for number, line in enumerate(x for x in some if x["setting"] == setting):
            label = None if number else setting
            axes.plot(line["distance_by_round"], color=COLOURS[place], label=label, alpha=0.6, linewidth=1)
    axes.set(xlabel="round", ylabel="distance to theta*", title="Contraction to a floor", yscale="log")
    axes.legend(fontsize=8)


def _floors(axes: Axes, rows: list[Row]) -> None:
    floors = [row for row in rows if row["metric"] == "floor"]
    fitted = {row["setting"].split(" against ")[-1]: row for row in rows if row["metric"] == "exponent"}
    for place, name in enumerate(dict.fromkeys(row["setting"].split("=")[0] for row in floors)):
        some = [row for row in floors if row["setting"].startswith(f"{name}=")]
        x = np.array([_number(row["setting"]) for row in some])
        y, std = (np.array([row[key] for row in some]) for key in ("mean", "std"))
        label = f"{name}: exponent {fitted[name]['mean']:.2f}" if name in fitted else name
        colour = COLOURS[place]
        axes.errorbar(x / x.min(), y, std, fmt="o", color=colour, capsize=3, label=label)
        if name in fitted:
            slope = fitted[name]["mean"]
            scale = np.exp(np.mean(np.log(y) - slope * np.log(x)))
            axes.plot(x / x.min(), scale * x**slope, color=colour, linewidth=1)
    axes.set(
        xlabel="what is varied, over its smallest value", ylabel="floor", title="Floors and their exponents"
    )
    axes.set(xscale="log", yscale="log")
    axes.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    axes.minorticks_off()
    axes.legend(fontsize=8)


def _errors(axes: Axes, lines: list[Line]) -> None:
    for place, setting in enumerate(dict.fromkeys(line["setting"] for line in lines)):
        mine = [line["errors"] for line in lines if line["setting"] == setting]
        sizes = [int(n) for n in mine[0]]
        mean = [np.mean([errors[str(n)] for errors in mine]) for n in sizes]
        shown = [(n, e) for n, e in zip(sizes, mean, strict=True) if e > 0]
        style = "o-" if setting.startswith("alpha") else "s--"
        axes.plot(*zip(*shown, strict=True), style, color=COLOURS[place % 4], label=setting, markersize=4)
    axes.set(xlabel="n'", ylabel="share of wrong identities", title="Identity errors", yscale="log")
    axes.legend(fontsize=7)


def _number(setting: str) -> float:
    above, _, below = setting.split("=")[1].partition("/")
    return float(above) / float(below or 1)
