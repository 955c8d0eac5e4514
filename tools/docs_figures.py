"""The figures of docs/algorithm.md, from real runs: python tools/docs_figures.py"""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ifca import IFCA, Client, Federation, rotated_digits
from ifca.core.errors import FewerClustersWarning
from ifca.core.recipe import Recipe
from ifca.models import linear, mlp
from ifca.report.palette import colour
from ifca.training import Job, fit

OUT = Path(__file__).parent.parent / "docs" / "images"
COLOURS = [colour(j) for j in (0, 5, 2, 3)]
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})


def slopes(seed: int = 3) -> Federation:
    """Twelve clients with ten points each on a line through zero, of slope 1.2 or -0.6."""
    rng = np.random.default_rng(seed)
    clients = []
    for i in range(12):
        x = rng.uniform(-2, 2, (10, 1)).astype(np.float32)
        y = (1.2 if i % 2 else -0.6) * x[:, 0] + rng.normal(0, 0.25, 10).astype(np.float32)
        clients.append(Client(x, y, id=f"c{i}", cluster=i % 2))
    return Federation.from_clients(clients)


def rounds_figure() -> None:
    """Plain IFCA on lines: who chooses which model, and where the models go."""
    federation = slopes()
    start = {"fc1.weight": torch.tensor([[[0.55]], [[0.2]]])}
    shown, states = (0, 1, 2, 8), {0: torch.tensor([0.55, 0.2])}
    identities: dict[int, list[int]] = {}
    recipe = Recipe(algorithm="ifca-plain", k=2, rounds=9, step_size=0.1, local_steps=2)

    def remember(state: object, record: dict[str, object]) -> None:
        states[int(state.round)] = state.theta["fc1.weight"].flatten().clone()  # type: ignore[attr-defined]
        identities[int(record["round"])] = list(record["identity"])  # type: ignore[call-overload]

    fit(Job(federation, recipe, lambda: linear(1), warm_start=start), on_round=remember)
    figure, axes = plt.subplots(1, len(shown), figsize=(10, 2.9), sharey=True, layout="constrained")
    for axis, t in zip(axes, shown, strict=True):
        for i in range(len(federation.train)):
            x, y = federation.train.arrays(i)
            axis.scatter(x[:, 0], y, s=9, color=COLOURS[identities[t][i]], alpha=0.5, linewidths=0)
        for j, slope in enumerate(states[t].tolist()):
            axis.plot([-2, 2], [-2 * slope, 2 * slope], color=COLOURS[j], linewidth=2.5, label=f"model {j}")
        axis.set_title("start" if t == 0 else f"after {t} round" + "s" * (t > 1))
        axis.set_xlabel("x")
    axes[0].set_ylabel("y")
    axes[0].legend(frameon=False, loc="upper left")
    figure.savefig(OUT / "rounds.png", dpi=130)
    plt.close(figure)


def digits_figure(seed: int = 1, rounds: int = 30) -> None:
    """Rotated Digits: the cluster of each client per round, and accuracy beside the baselines'."""
    federation = rotated_digits(seed=seed)
    kinds = {
        "ifca": ("IFCA (default)", "black", "-"),
        "ifca-plain": ("plain IFCA", COLOURS[1], "-"),
        "local": ("local models", "grey", ":"),
        "global": ("one global model", "grey", "--"),
    }
    options = {"k": 4, "rounds": rounds, "seed": seed, "device": "cpu", "model": lambda: mlp(64, 10, (100,))}
    runs = {name: IFCA(algorithm=name, **options) for name in kinds}
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewerClustersWarning)
        for model in runs.values():
            model.fit(federation)
    for axis, name in zip(axes, ("ifca-plain", "ifca"), strict=False):
        _bands(axis, np.array([record["identity"] for record in runs[name].history_]).T)
        axis.set_title(f"{kinds[name][0]}: the model of each client")
    for name, (label, paint, style) in kinds.items():
        accuracy = [100 * record["test_accuracy"] for record in runs[name].history_]
        axes[2].plot(range(1, rounds + 1), accuracy, style, label=label, linewidth=2, color=paint)
    axes[2].set(xlabel="round", ylabel="test accuracy, %", title="how well they are served", ylim=(40, 100))
    axes[2].legend(frameon=False, loc="lower right")
    figure.savefig(OUT / "digits.png", dpi=130)
    plt.close(figure)


def _bands(axis: Axes, chosen: NDArray[np.int64]) -> None:
    """A row for each client and a column for each round. chosen: [m, T]"""
    m, rounds = chosen.shape
    colours, place = mpl.colors.ListedColormap(COLOURS), (0.5, rounds + 0.5, m - 0.5, -0.5)
    axis.imshow(chosen, aspect="auto", interpolation="nearest", cmap=colours, vmin=0, vmax=3, extent=place)
    axis.set(xlabel="round", ylabel="client")
    axis.set_yticks([14, 42, 70, 98], ["0°", "90°", "180°", "270°"])
    for edge in (28, 56, 84):
        axis.axhline(edge - 0.5, color="white", linewidth=1)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    rounds_figure()
    digits_figure()
