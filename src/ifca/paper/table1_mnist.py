"""Rotated MNIST: the left part of the paper's Table 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ifca.paper import jobs
from ifca.paper.frame import Experiment, Paper, Scale
from ifca.paper.measure import measured
from ifca.runs.units.unit import Line, Unit
from ifca.training import Job, fit
from ifca.training.local_training import local_scores

SAMPLES = {"m=4800 n=50": 50, "m=2400 n=100": 100, "m=1200 n=200": 200}
SHARE = 40  # of the clients in the quick version
QUICK = {f"m={240_000 // n // SHARE} n={n}": n for n in SAMPLES.values()}
ROUNDS, QUICK_ROUNDS, AUTHORS_ROUNDS = 300, 90, 10
ROWS: dict[str, dict[str, Any]] = {
    "ifca": {},
    "ifca-plain": {},
    "global": {"rounds": ROUNDS},  # it learns all rotations slowly, also in the quick version
    "local": {},
    "local-100": {"algorithm": "local", "rounds": AUTHORS_ROUNDS},
}
"""The rows of the table, and what each changes of the recipe beside its algorithm."""


def run(unit: Unit, device: torch.device) -> Line:
    """One training."""
    job = jobs.placed(_job(unit), device)
    changes = {"algorithm": unit.algorithm, "evaluate_every": 10, **ROWS[unit.algorithm]}
    job = replace(job, recipe=replace(job.recipe, **changes))
    return local(job) if job.method.personal else measured(fit(job))


def local(job: Job) -> Line:
    """Every client's own model, tested on all test data of its own rotation."""
    tests = job.federation.test
    assert tests is not None
    assert tests.true_cluster is not None
    assert job.federation.train.true_cluster is not None
    of = {c: np.flatnonzero(tests.true_cluster == c).tolist() for c in set(tests.true_cluster.tolist())}
    true = job.federation.train.true_cluster.tolist()
    scores = local_scores(job, tests, [of[c] for c in true])
    sizes = torch.tensor([int(tests.sizes[of[c]].sum()) for c in true])
    share = scores.correct[:, 0].double() / sizes
    return {
        "test_accuracy": float(share.mean()),
        "test_accuracy_over_clients_std": float(share.std(correction=0)),
        "steps": job.recipe.rounds * job.recipe.local_steps,
    }


def _job(unit: Unit) -> Job:
    if not unit.quick:
        return jobs.mnist(SAMPLES[unit.setting], unit.seed, rounds=ROUNDS)
    n = QUICK[unit.setting]
    clients, tests = 240_000 // n // SHARE, 40_000 // n // SHARE
    return jobs.mnist(n, unit.seed, rounds=QUICK_ROUNDS, clients=clients, test_clients=max(4, tests))


def _paper() -> Paper:
    table = {
        "ifca": [(94.20, 0.03), (95.05, 0.02), (95.25, 0.40)],
        "global": [(86.74, 0.04), (88.65, 0.08), (89.73, 0.13)],
        "local": [(63.32, 0.02), (73.66, 0.04), (80.05, 0.02)],
    }
    found = {
        (s, a, "test_accuracy"): v for a, row in table.items() for s, v in zip(SAMPLES, row, strict=True)
    }
    for (setting, algorithm, metric), value in list(found.items()):
        twin = {"ifca": "ifca-plain", "local": "local-100"}.get(algorithm)
        if twin:
            found[setting, twin, metric] = value
    return found


EXPERIMENTS = {
    "rotated-mnist": Experiment(
        name="rotated-mnist",
        title="Rotated MNIST (Table 1)",
        full=Scale(dict.fromkeys(SAMPLES, tuple(ROWS)), 5),
        quick=Scale(dict.fromkeys(QUICK, tuple(ROWS)), 1),
        run=run,
        metrics=(
            "test_accuracy",
            "best_test_accuracy",
            "cluster_accuracy",
            "live_clusters",
            "all_right",
            "bytes",
        ),
        about="k = 4 rotations, MLP 784-200-10, 10 full-batch steps of 0.1 a round, everybody in each of 300 "
        "rounds; the last round counts.",
        about_quick=f"one client in {SHARE}, {QUICK_ROUNDS} rounds ({ROUNDS} of the global model, which "
        "learns slowly), one seed, in which plain IFCA loses a cluster",
        paper=_paper(),
        deviations=("D5", "D12", "D17", "D19", "D36", "D37"),
        data=lambda _setting: ("mnist",),
    )
}
