"""The figure of communication: test accuracy against bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ifca.methods.global_model import GLOBAL
from ifca.report.paper.paper_style import DASHES, INKS, WIDTH, Line, Row, readable, symbols
from ifca.report.paper.paper_tables import name_of


def bytes_figure(_rows: list[Row], lines: list[Line]) -> Figure:
    """Mean over seeds with a band of one std; a panel for each algorithm, global's curve in both."""
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, algorithm in zip(panels, ("ifca", "ifca-plain"), strict=True):
        for place, setting in enumerate(dict.fromkeys(line["setting"] for line in lines)):
            some = [
                x for x in lines if x["setting"] == setting and x["algorithm"] in (algorithm, GLOBAL.name)
            ]
            if some:
                sent, accuracy = at_common_bytes([line["curve"] for line in some])
                mean, std = accuracy.mean(0), accuracy.std(0)
                colour, style = INKS[place % len(INKS)], DASHES[place % len(DASHES)]
                axes.fill_between(sent / 1e6, mean - std, mean + std, color=colour, alpha=0.1, linewidth=0)
                width = 2.4 - 0.2 * place  # the first are seen under those that coincide with them
                kind: dict[str, Any] = {"color": colour, "linestyle": style, "linewidth": width}
                axes.plot(sent / 1e6, mean, label=symbols(setting), **kind)
        axes.set(xlabel="MB, all clients, both ways", title=name_of(algorithm), xscale="log")
        readable(axes.xaxis)
    panels[0].set_ylabel("test accuracy (%), mean ± std over seeds")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def at_common_bytes(curves: list[list[list[float]]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bytes that every seed has sent, and each seed's accuracy (%) there: [points], [seeds, points].

    By round instead, means of seeds that save at different rounds would bend backwards.
    """
    each = [np.array(curve, dtype=np.float64).T for curve in curves]
    first, last = max(sent[0] for sent, _ in each), min(sent[-1] for sent, _ in each)
    common = np.geomspace(first, last, 300)
    return common, 100 * np.array([np.interp(common, sent, accuracy) for sent, accuracy in each])
