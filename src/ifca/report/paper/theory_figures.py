"""The figure of the theory experiments: contraction to a floor, floors as power laws, identity errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ifca.report.paper.paper_style import DASHES, INKS, MARKS, WIDTH, Line, Row, readable, symbol, symbols

# Where rho is varied: seen around the points of alpha that it coincides with.
HOLLOW = {"linestyle": "--", "markerfacecolor": "none", "markersize": 7.5}
APART = 1.04  # factor: points of quantities with one exponent stand side by side


def theory_figure(rows: list[Row], lines: list[Line]) -> Figure:
    """Distances by round; floors against what is varied; where there are any, identity errors against n'."""
    errors = [line for line in lines if "errors" in line]
    figure = Figure(figsize=(WIDTH, 6.2 if errors else 3.3), layout="constrained")
    panels = figure.subplot_mosaic("rf;ee" if errors else "rf")  # rounds, floors; errors
    _rounds(panels["r"], [line for line in lines if "distance_by_round" in line])
    _floors(panels["f"], rows)
    if errors:
        _errors(panels["e"], errors)
    return figure


def _rounds(axes: Axes, lines: list[Line]) -> None:
    """Of the quantity that is varied first: every seed's curve."""
    varied = lines[0]["setting"].split("=")[0] if lines else ""
    some = [line for line in lines if line["setting"].startswith(f"{varied}=")]
    for place, setting in enumerate(dict.fromkeys(line["setting"] for line in some)):
        for number, line in enumerate(x for x in some if x["setting"] == setting):
            label = None if number else symbols(setting)
            kind: dict[str, Any] = {"color": INKS[place], "linestyle": DASHES[place], "linewidth": 0.7}
            axes.plot(line["distance_by_round"], label=label, **kind)
    axes.set(xlabel="round", ylabel=f"distance to {symbol('theta*')}", title="Contraction, every seed")
    axes.set_yscale("log")
    readable(axes.yaxis)
    if some:  # of an experiment that is partly run there may be none yet
        axes.legend()


def _floors(axes: Axes, rows: list[Row]) -> None:
    """Each quantity over its smallest value, with the fitted power law."""
    floors = [row for row in rows if row["metric"] == "floor"]
    fitted = {row["setting"].split(" against ")[-1]: row for row in rows if row["metric"] == "exponent"}
    names = list(dict.fromkeys(row["setting"].split("=")[0] for row in floors))
    ticks: set[float] = set()
    for place, name in enumerate(names):
        some = [row for row in floors if row["setting"].startswith(f"{name}=")]
        x = np.array([_number(row["setting"]) for row in some])
        y, std = (np.array([row[key] for row in some]) for key in ("mean", "std"))
        ticks |= set((x / x.min()).tolist())
        label = f"{symbol(name)}: " + (f"${fitted[name]['mean']:.2f}$" if name in fitted else "not fitted")
        at = x / x.min() * APART ** (place - (len(names) - 1) / 2)
        axes.errorbar(at, y, std, fmt=MARKS[place], color=INKS[place], label=label)
        if name in fitted:
            slope = fitted[name]["mean"]
            scale = np.exp(np.mean(np.log(y) - slope * np.log(x)))
            axes.plot(at, scale * x**slope, color=INKS[place], linestyle=DASHES[place], linewidth=0.9)
    axes.set(xlabel="what is varied, over its smallest value", ylabel="floor of the distance")
    axes.set(title="Floors, mean ± std, and fits", xscale="log", yscale="log")
    readable(axes.yaxis)
    axes.set_xticks(sorted(ticks), [f"{tick:g}" for tick in sorted(ticks)])
    axes.xaxis.set_minor_locator(NullLocator())
    if not floors:
        return
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.35)  # room for the legend
    axes.legend(loc="upper center", ncols=3, title="fitted exponents", columnspacing=1, handlelength=1)


def _errors(axes: Axes, lines: list[Line]) -> None:
    """A curve for each alpha and rho; the point that both are varied from is in the lines twice."""
    points: dict[frozenset[str], list[Line]] = {}
    for line in lines:
        points.setdefault(frozenset(line["setting"].split(" ")), []).append(line)
    for place, some in enumerate(points.values()):
        mine = [line["errors"] for line in some if line["setting"] == some[0]["setting"]]
        sizes = [int(n) for n in mine[0]]
        mean = [np.mean([errors[str(n)] for errors in mine]) for n in sizes]
        shown = np.array([(n, e) for n, e in zip(sizes, mean, strict=True) if e > 0]).reshape(-1, 2)
        varied: dict[str, Any] = {} if some[0]["setting"].startswith("alpha") else HOLLOW
        ink, mark = INKS[place % len(INKS)], MARKS[place % len(MARKS)]
        axes.plot(*shown.T, color=ink, marker=mark, label=symbols(some[0]["setting"]), **varied)
    sizes = sorted({int(n) for line in lines for n in line["errors"]})
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.set(xlabel=symbols("samples n' of a client"), ylabel="share of wrong identities, mean")
    axes.set(title="Identity errors", yscale="log")
    axes.legend(loc="lower left")


def _number(setting: str) -> float:
    above, _, below = setting.split("=")[1].partition("/")
    return float(above) / float(below or 1)
