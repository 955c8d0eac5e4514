"""The two figures of a run: accuracy per round, and the clients' identities over the rounds."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ifca.report.palette import colour
from ifca.report.read_run import RunFolder
from ifca.report.words import title_of

CHOSEN = "test_accuracy_train_rule"
"""The rule to quote: the paper's, which looks at the answers, is drawn where this one is unknown."""


def write_figures(run: RunFolder) -> list[Path]:
    """accuracy.png and, where clients have identities, identities.png in the run's folder."""
    drawn = [write_png(run.path / "accuracy.png", accuracy_figure(run))]
    if run.rounds and run.rounds[0]["identity"] is not None:
        drawn.append(write_png(run.path / "identities.png", identities_figure(run)))
    return drawn


def accuracy_figure(run: RunFolder) -> Figure:
    """Test accuracy (regression: test loss; no test data: training loss) after each round, all algorithms."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    runs = [run, *run.baselines.values()]
    metric, label = "train_loss", "training loss"
    if run.summary["test_loss"] is not None:
        metric, label = "test_loss", "test loss"
    if run.summary["test_accuracy"] is not None:
        metric, label = "test_accuracy", "test accuracy (%), paper's rule"
        if all(any(r.get(CHOSEN) is not None for r in one.rounds) for one in runs):
            metric, label = CHOSEN, "test accuracy (%), each client with the model it chose"
    scale = 100 if "accuracy" in metric else 1
    for place, one in enumerate(runs):
        points = [(r["round"] + 1, scale * r[metric]) for r in one.rounds if r.get(metric) is not None]
        if points:
            x, y = zip(*points, strict=True)
            style, width, front = ("-", 2.5, 3) if one is run else ("--", 1.5, 2)
            name = f"{title_of(one.summary)}: {y[-1]:.4g}"
            axes.plot(x, y, style, color=colour(place), linewidth=width, zorder=front, label=name)
    axes.set(xlabel="round", ylabel=label, title="Accuracy per round" if scale == 100 else "Loss per round")
    axes.legend()
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def identities_figure(run: RunFolder) -> Figure:
    """Clients (rows) x rounds (columns), coloured by cluster; sorted by true cluster where it is known."""
    table = run.identities()
    k = run.summary["k"]
    trained = [row for row in run.clients if row["train_samples"] != "0"]
    true = [row["true_cluster"] for row in trained]
    final = [int(row["cluster"]) for row in trained]
    order = np.lexsort((final, [int(c) for c in true])) if all(true) else np.argsort(final, kind="stable")
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    colours = ["#FFFFFF", *[colour(j) for j in range(k)]]
    axes.imshow(
        table[order] + 1,
        aspect="auto",
        interpolation="nearest",
        cmap=ListedColormap(colours),
        vmin=0,
        vmax=k,
        extent=(0.5, table.shape[1] + 0.5, len(order), 0),
    )
    axes.set(xlabel="round", title="Which cluster each client chose")
    if all(true):
        _mark_true_clusters(axes, [true[i] for i in order])
    else:
        axes.set_ylabel("clients, sorted by their last cluster")
    for j in range(k):
        axes.plot([], [], "s", color=colours[j + 1], label=f"cluster {j} ({final.count(j)} clients)")
    if (table < 0).any():
        axes.plot([], [], "s", color="white", markeredgecolor="grey", label="did not take part")
    figure.legend(loc="outside lower center", ncols=min(4, k + 1), fontsize=8)
    return figure


def _mark_true_clusters(axes: Axes, sorted_true: list[str]) -> None:
    """A line between true clusters, and their names beside their middles."""
    names = sorted(set(sorted_true), key=int)
    edges = np.cumsum([0, *[sorted_true.count(name) for name in names]])
    for edge in edges[1:-1]:
        axes.axhline(edge, color="black", linewidth=1)
    axes.set_yticks([(a + b) / 2 for a, b in pairwise(edges)], names)
    axes.set_ylabel("clients, by true cluster")


def write_png(file: Path, figure: Figure) -> Path:
    """Draw into a file."""
    FigureCanvasAgg(figure)
    figure.savefig(file, dpi=150)
    return file
