"""Rounds, exchanges and bytes to a training objective: option I, option II and GIANT inside clusters.

python benchmarks/second_order.py [FOLDER] writes summary.json and table.md, to results/second-order.
All begin with the clusters and models of initial = "oneshot". The steps of options I and II are those that
reach the hardest target first on seeds 1000 and 1001; GIANT has none. Ten local steps, or steps of
conjugate gradients.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ifca
from ifca.bench.regimes import regime_of
from ifca.core.callbacks import Record
from ifca.core.client import objective
from ifca.core.errors import Diverged
from ifca.core.metrics import cluster_accuracy
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, Data
from ifca.data import Federation, mixture_of_regressions
from ifca.models import linear
from ifca.runs.units.execute import commit_of, versions
from ifca.training import Job, fit
from ifca.training.job import CPU
from ifca.training.start import start

SEEDS, TUNED_ON, ROUNDS = range(3), (1000, 1001), 150
TARGETS = (0.1, 0.01, 0.0001)  # of the gap between the first objective and the lowest
STEPS = {"option I": (0.25, 0.5, 1.0, 2.0, 4.0), "option II": (0.0625, 0.125, 0.25, 0.5)}
STILL = 25  # rounds that must bring the objective 1% nearer to the lowest
METHODS: dict[str, dict[str, Any]] = {
    "option I": {"algorithm": "ifca-plain", "option": "gradient"},
    "option II": {"algorithm": "ifca-plain", "option": "model"},
    "GIANT": {"algorithm": "giant"},
}
NEVER = f"not in {ROUNDS}"
EXCHANGES = {"option I": 1, "option II": 1, "GIANT": 3}  # in a round


@dataclass(frozen=True)
class Course:
    """A training: after so many rounds."""

    objective: list[float]  # the clients' mean, l2 included
    carried: list[int]  # bytes down and up
    accuracy: float  # of the clusters in the end


def regressions(scales: float) -> Callable[[int], Job]:
    """Mixtures of linear regressions; scales: of the largest feature over the smallest."""

    def make(seed: int) -> Job:
        found, _ = mixture_of_regressions(clients=20, samples=200, dimension=40, noise=0.1, seed=seed)
        unit = torch.logspace(0, -np.log10(scales), 40)
        train = replace(found.train, x=found.train.x * unit)
        federation = Federation(train, None, through_origin=True)
        return Job(federation, Recipe(erm_step_size=0.05), lambda: linear(40))

    return make


def table(name: str, l2: float) -> Callable[[int], Job]:
    """A regime of the bench."""

    def make(seed: int) -> Job:
        job = regime_of(name).job(seed)
        return replace(job, recipe=Recipe(l2=l2, erm_step_size=0.1))

    return make


PROBLEMS: dict[str, Callable[[int], Job]] = {
    "breast cancer, labels swapped": table("cancer-swapped", 0.01),
    "regressions, features of unequal scale": regressions(10.0),
    "mixture of regressions": regressions(1.0),
    "wine, offset and gain": table("wine-gain", 0.01),
}


def job_of(problem: str, method: str, seed: int, **more: Any) -> Job:
    """The job of a method on a problem."""
    job = PROBLEMS[problem](seed)
    usual = {"k": 2, "rounds": ROUNDS, "local_steps": 10, "initial": "oneshot", "evaluate_every": 0}
    recipe = replace(job.recipe, seed=seed, **{**usual, **METHODS[method], **more})
    return replace(job, recipe=recipe, precision="float64")


@lru_cache
def begun(problem: str, seed: int) -> ClusterState:
    """The clusters and models that all methods begin with."""
    return start(job_of(problem, "GIANT", seed))


def course(problem: str, job: Job) -> Course:
    """Train until the hardest target is reached, or the objective stands still, or for all rounds."""
    seed, found = job.recipe.seed, Course([], [0], 0.0)
    before, lowest = begun(problem, seed), lowest_of(problem, seed)
    true = job.federation.train.true_cluster
    assert true is not None

    def on_round(state: ClusterState, record: Record) -> bool:
        nonlocal before
        sizes = torch.stack([value.flatten(1).square().sum(1) for value in before.theta.values()]).sum(0)
        mean = float(sizes[torch.tensor(record["identity"])].mean())
        found.objective.append(record["train_loss"] + job.recipe.l2 / 2 * mean)
        found.carried.append(found.carried[-1] + record["bytes_down"] + record["bytes_up"])
        before = state
        gaps = [value - lowest for value in found.objective]
        still = len(gaps) > STILL and gaps[-1] > 0.99 * gaps[-1 - STILL]
        return still or reached(found, lowest)[-1] is not None

    fitted = fit(job, resume=before, on_round=on_round)
    return replace(found, accuracy=cluster_accuracy(true, fitted.labels.numpy()))


def reached(found: Course, lowest: float) -> list[int | None]:
    """The rounds after which each target was reached."""
    gaps = np.array(found.objective) - lowest
    hits = [np.flatnonzero(gaps <= share * gaps[0]) for share in TARGETS]
    return [int(hit[0]) if len(hit) else None for hit in hits]


@lru_cache
def lowest_of(problem: str, seed: int) -> float:
    """The lowest objective with the true clusters, by L-BFGS on the data of each."""
    job = job_of(problem, "GIANT", seed)
    clients, total = job.federation.train, 0.0
    assert clients.true_cluster is not None
    for j in range(2):
        members = [clients.one(int(i), CPU, job.dtype) for i in np.flatnonzero(clients.true_cluster == j)]
        total += _minimum(job, members)
    return total / len(clients)


def _minimum(job: Job, members: list[Data]) -> float:
    """Of the sum of the members' objectives over one model."""
    theta = {
        name: torch.zeros_like(value).requires_grad_() for name, value in job.template.named_parameters()
    }
    solver = torch.optim.LBFGS(
        theta.values(), max_iter=2000, tolerance_grad=1e-10, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        solver.zero_grad()
        loss = torch.stack([objective(job.task, theta, data) for data in members]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    solver.step(closure)  # type: ignore[no-untyped-call]
    return float(closure().detach())


def tuned(problem: str, method: str) -> float | None:
    """The step that reaches the hardest target first on all seeds of tuning; then the next hardest."""
    if method == "GIANT":
        return None
    best, most = (list[float](), math.inf, math.nan), ROUNDS
    for step in STEPS[method]:
        try:
            jobs = {seed: job_of(problem, method, seed, step_size=step, rounds=most) for seed in TUNED_ON}
            runs = [(course(problem, job), lowest_of(problem, seed)) for seed, job in jobs.items()]
        except Diverged:
            continue
        rounds = [[ROUNDS if t is None else t for t in reached(*run)] for run in runs]
        slowest = [float(max(some)) for some in zip(*rounds, strict=True)]
        found = slowest[::-1], sum(one.objective[-1] for one, _ in runs), step
        if math.isnan(best[2]) or found < best:
            best, most = found, min(ROUNDS, int(slowest[-1]) + 1)  # others need not go on for longer
    return best[2]


def measured(problem: str) -> list[dict[str, Any]]:
    """A row for each method and target."""
    rows: list[dict[str, Any]] = []
    for method in METHODS:
        step = tuned(problem, method)
        mine: list[dict[str, Any]] = [
            {"problem": problem, "method": method, "target": share, "step_size": step, "rounds": []}
            | {"exchanges": [], "bytes": [], "cluster_accuracy": []}
            for share in TARGETS
        ]
        for seed in SEEDS:
            job = job_of(problem, method, seed, **({} if step is None else {"step_size": step}))
            found = course(problem, job)
            for row, t in zip(mine, reached(found, lowest_of(problem, seed)), strict=True):
                row["rounds"].append(t)
                row["exchanges"].append(None if t is None else t * EXCHANGES[method])
                row["bytes"].append(None if t is None else found.carried[t])
                row["cluster_accuracy"].append(found.accuracy)
        print(*(json.dumps(row) for row in mine), sep="\n", flush=True)
        rows += mine
    return rows


def cell(values: list[int | None], unit: float = 1) -> str:
    """The mean over seeds; where a seed did not get there, no number."""
    there = [value for value in values if value is not None]
    if len(there) < len(values):
        return NEVER
    mean = float(np.mean(there)) / unit
    return f"{mean:.0f}" if mean >= 100 else f"{mean:.3g}"


def table_of(rows: list[dict[str, Any]]) -> str:
    """The means as Markdown: a line for each problem and target."""
    lines = [
        "| problem | gap left | option I | option II | GIANT, rounds | GIANT, exchanges | kB: I, II, GIANT |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for problem in dict.fromkeys(row["problem"] for row in rows):
        for share in TARGETS:
            here = {r["method"]: r for r in rows if (r["problem"], r["target"]) == (problem, share)}
            one, two, giant = (here[method] for method in METHODS)
            carried = ", ".join(cell(r["bytes"], 1000).replace(NEVER, "–") for r in here.values())
            numbers = [cell(r["rounds"]) for r in (one, two, giant)] + [cell(giant["exchanges"]), carried]
            lines.append(f"| {problem} | {share:g} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    """All problems and methods; what is there is written after each problem."""
    made = {"commit": commit_of(Path(ifca.__file__).parent), "versions": versions(), "device": "cpu"}
    told = {"rounds_at_most": ROUNDS, "seeds": list(SEEDS), "tuned_on_seeds": TUNED_ON, "steps_tried": STEPS}
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for some in pool.map(measured, PROBLEMS):
            rows += some
            found = {"rows": rows, **told, **made, "command": "python benchmarks/second_order.py"}
            (folder / "summary.json").write_text(json.dumps(found, indent=1) + "\n")
            (folder / "table.md").write_text(table_of(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results/second-order"))
