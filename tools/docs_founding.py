"""The figure of the reading guide on founding and referee, from real runs: python tools/docs_founding.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from mpl_toolkits.mplot3d import Axes3D
from torch import Tensor

from ifca import Federation, rotated_digits
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, select
from ifca.methods.founding import points_of
from ifca.methods.ifca import memory_of
from ifca.methods.referee import Sums, above_zero, averages
from ifca.models import mlp
from ifca.report.palette import colour
from ifca.training import Fitted, Job, fit

OUT = Path(__file__).parent.parent / "docs" / "images"
COLOURS = [colour(j) for j in (0, 5, 2, 3)]
TITLE: dict[str, Any] = {"fontsize": 12, "x": 0.02, "ha": "left"}
STAGES = ("#dbe5f4", "#fbeecb", "#dcefdc")
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})


def job_of(federation: Federation, k: int, rounds: int) -> Job:
    """The default job's recipe."""
    recipe = Recipe(k=k, rounds=rounds, evaluate_every=0)
    return Job(federation, recipe, lambda: mlp(64, 10, (200,)))


def probes(axis: Axes3D) -> None:
    """The clients' solutions, along the three directions in which they differ most."""
    job = job_of(rotated_digits(), 4, 1)
    true = np.asarray(job.federation.train.true_cluster)
    solved = job.make_engine().solve().theta
    flat = torch.cat([value.flatten(1) for value in solved.values()], 1).double()
    points = points_of(flat)[0].numpy()
    points = points - points.mean(0)
    main = points @ np.linalg.svd(points, full_matrices=False)[2][:3].T
    for j, kind in enumerate(np.unique(true)):
        mine = main[true == kind]
        axis.scatter(*mine.T, s=24, color=COLOURS[j], edgecolors="white", linewidths=0.4, depthshade=False)
        x, y, z = mine.mean(0)
        axis.text(
            x,
            y,
            z + 0.16 * np.ptp(main[:, 2]),
            f"{kind}°",
            color=COLOURS[j],
            fontweight="bold",
            fontsize=11,
            ha="center",
        )
    for side in (axis.xaxis, axis.yaxis, axis.zaxis):
        side.set_ticklabels([])
        side.set_tick_params(length=0)
        side.line.set_color("#999999")
        side.set_pane_color((0.96, 0.96, 0.96))
    axis.view_init(elev=18, azim=-50)
    axis.set_box_aspect((1, 1, 1), zoom=1.05)
    axis.grid(color="#dddddd")


def lost(federation: Federation, k: int, after: int) -> tuple[list[np.ndarray], np.ndarray]:
    """What samples set aside by two groups lose more: by group under the other's model; under the average."""
    job, states = job_of(federation, k, after), list[ClusterState]()
    fit(job, on_round=lambda state, _record: states.append(state))
    state, task = states[-1], job.task
    memory = memory_of(state)
    both = select(averages(state.theta, memory.turns, [(0, 1)]), 0)
    held = federation.train.parted(job.recipe.seed)[1]
    other, average = [list[Tensor](), list[Tensor]()], list[Tensor]()
    for i in torch.nonzero(memory.given < 2)[:, 0].tolist():
        data = held.one(i, torch.device("cpu"), torch.float32)
        mine = int(memory.given[i])
        losses = [
            task.loss(task.output(theta, data.x), data.y).detach().double()
            for theta in (select(state.theta, mine), select(state.theta, 1 - mine), both)
        ]
        other[mine].append(losses[1] - losses[0])
        average.append(losses[2] - losses[0])
    return [torch.cat(group).numpy() for group in other], torch.cat(average).numpy()


def sums(values: np.ndarray) -> Sums:
    """As clients send them."""
    return Sums(len(values), float(values.sum()), float(np.square(values).sum()))


def savings(
    axis: Axes, found: tuple[list[np.ndarray], np.ndarray], title: str, said: str, paints: list[str]
) -> None:
    """A histogram for each group under the other's model, and both tests."""
    groups, average = found
    low, high = np.quantile(np.concatenate(groups), [0.005, 0.995])
    reach = max(abs(low), abs(high))
    for values, paint in zip(groups, paints, strict=True):
        axis.hist(values, bins=np.linspace(-reach, reach, 41), color=paint, alpha=0.55)
        axis.axvline(values.mean(), color=paint, linewidth=2, linestyle=(0, (2, 1)))
    axis.set_ylim(0, 2 * axis.get_ylim()[1])  # room for the text
    axis.axvline(0, color="black", linewidth=1)
    means = " and ".join(f"{values.mean():+.3f}" for values in groups)
    own, worse = above_zero(*map(sums, groups))[1], above_zero(sums(average))[1]
    text = f"means {means}\nown better: p = {_power(own)}\naverage worse: p = {_power(worse)}\n{said}"
    axis.text(0.02, 0.96, text, transform=axis.transAxes, va="top", fontsize=9)
    axis.set_title(title, fontsize=9.5, loc="left")
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)


def _power(p: float) -> str:
    if p == 0 or p > 1e-3:
        return f"{p:.1g}"
    digits, exponent = f"{p:.0e}".split("e")
    return rf"${digits}\cdot10^{{{int(exponent)}}}$"


def stages(axis: Axes, rounds: int = 24) -> None:
    """A run in which six clusters are asked for and four are there."""
    fitted: Fitted = fit(job_of(rotated_digits(), 6, rounds))
    events = {
        record["round"] + 1: [event["event"] for event in record["events"]] for record in fitted.history
    }
    models = [6, *(record["models"] for record in fitted.history)]
    kept = next(t for t, kinds in events.items() if "kept" in kinds)
    free = next(t for t, kinds in events.items() if "free" in kinds)
    for (start, end, name), paint in zip(
        ((0, kept, "judged"), (kept, free, "held"), (free, rounds, "Algorithm 2")), STAGES, strict=True
    ):
        axis.axvspan(start, end, color=paint, linewidth=0)
        axis.text((start + end) / 2, 7.35, name, ha="center", va="center", fontsize=10)
    axis.step(range(rounds + 1), models, where="post", color="black", linewidth=2)
    for t, kinds in events.items():
        for kind in dict.fromkeys(kinds):
            mark, paint = {"merged": ("v", COLOURS[1]), "kept": ("s", COLOURS[0]), "free": ("o", COLOURS[2])}[
                kind
            ]
            axis.plot(t, models[t], mark, color=paint, markersize=9, markeredgecolor="white", zorder=3)
    for t in (*(look for look in (1, 2, 4, 8) if look < kept), kept):
        axis.plot([t, t], [0, 0.35], color="black", linewidth=1.5)
    axis.text(0.25, 0.6, "the referee looks", fontsize=9)
    handles = [
        axis.plot([], [], mark, color=paint, markersize=8, linestyle="none", label=label)[0]
        for mark, paint, label in (
            ("v", COLOURS[1], "groups become one"),
            ("s", COLOURS[0], "every two need both"),
            ("o", COLOURS[2], "clients choose"),
        )
    ]
    axis.legend(handles=handles, frameon=False, loc="lower right", fontsize=9, bbox_to_anchor=(1, 0.1))
    axis.set(xlim=(0, rounds), ylim=(0, 8), xlabel="rounds done", ylabel="models")
    axis.set_yticks([0, 2, 4, 6])
    axis.set_xticks(range(0, rounds + 1, 4))


def main() -> None:
    """Three panels."""
    figure = plt.figure(figsize=(12, 4.1), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=(1, 1.1, 1.2))
    left.suptitle("1. Founding: every point is\none client's ridge regression", **TITLE)
    probes(left.add_subplot(projection="3d"))
    above, below = middle.subplots(2, 1)
    middle.suptitle("2. Referee: what a sample set aside loses\nunder the other group's model", **TITLE)
    differ = rotated_digits()
    savings(above, lost(differ, 4, 1), "two rotations, after round 1", "both are needed", COLOURS[::2])
    one_law = rotated_digits(angles=(0,))
    savings(
        below,
        lost(one_law, 2, 7),
        "one rotation cut in two, after round 7",
        "one is enough",
        ["#444444", "#aaaaaa"],
    )
    below.set_xlabel("loss under the other model less loss under the own")
    right.suptitle("3. A run: six groups are founded,\nfour are needed", **TITLE)
    stages(right.subplots())
    OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT / "founding.png", dpi=130)


if __name__ == "__main__":
    main()
