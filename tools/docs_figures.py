"""The figures of docs/algorithm.md, from real runs: python tools/docs_figures.py"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

from ifca import IFCA, Client, Federation, rotated_digits
from ifca.core.recipe import Recipe
from ifca.models import linear
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


def digits_figure() -> None:
    """Rotated Digits: the cluster of each client per round, and accuracy beside the baselines'."""
    federation = rotated_digits()
    runs = {
        "IFCA, k = 4": IFCA(k=4, rounds=30, step_size=0.1, device="cpu"),
        "one global model": IFCA(algorithm="global", rounds=30, step_size=0.1, device="cpu"),
        "local models": IFCA(algorithm="local", rounds=30, step_size=0.1, device="cpu"),
    }
    for model in runs.values():
        model.fit(federation)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    chosen = np.array([record["identity"] for record in runs["IFCA, k = 4"].history_]).T  # [m, T]
    colours, place = mpl.colors.ListedColormap(COLOURS), (0.5, 30.5, len(chosen) - 0.5, -0.5)
    left.imshow(chosen, aspect="auto", interpolation="nearest", cmap=colours, extent=place)
    left.set(xlabel="round", ylabel="client", title="which model each client chooses")
    left.set_yticks([14, 42, 70, 98], ["0°", "90°", "180°", "270°"])
    for edge in (28, 56, 84):
        left.axhline(edge - 0.5, color="white", linewidth=1)
    for (name, model), style in zip(runs.items(), ("-", "--", ":"), strict=True):
        accuracy = [100 * record["test_accuracy"] for record in model.history_]
        right.plot(
            range(1, 31), accuracy, style, label=name, linewidth=2, color="black" if style == "-" else "grey"
        )
    right.set(xlabel="round", ylabel="test accuracy, %", title="how well they are served", ylim=(40, 100))
    right.legend(frameon=False, loc="lower right")
    figure.savefig(OUT / "digits.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    rounds_figure()
    digits_figure()
