"""Rotated CIFAR-10: the right column of the paper's Table 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ifca.methods.local_models import LOCAL
from ifca.models import mlp
from ifca.paper import jobs
from ifca.paper.cnn_alone import tested_on_all
from ifca.paper.frame import Experiment, Scale
from ifca.paper.measure import measured
from ifca.paper.table1_mnist import local as fast_local
from ifca.runs.units.unit import Line, Unit
from ifca.training import Job, fit

ROUNDS, EVERY, PART = 600, 20, 50
QUICK_ROUNDS = 40
ROWS: dict[str, dict[str, Any]] = {
    "ifca": {},
    "ifca-plain": {"initial": "balanced"},
    "global": {},
    "local": {},
}
"""The rows of the table, and what each changes of the recipe beside its algorithm."""


def run(unit: Unit, device: torch.device) -> Line:
    """One training."""
    job = jobs.placed(_job(unit), device, "bfloat16")
    changes = {"algorithm": unit.algorithm, "evaluate_every": EVERY, **ROWS[unit.algorithm]}
    job = replace(job, recipe=replace(job.recipe, **changes))
    if job.method.personal:
        return fast_local(local_job(job)) if unit.quick else local(local_job(job))
    return measured(fit(job))


def local_job(job: Job) -> Job:
    """As many turns for each client as it has on average in the federation, with the same decay of steps."""
    share = job.recipe.participation
    rounds = max(1, round(job.recipe.rounds * share))
    recipe = replace(job.recipe, algorithm=LOCAL.name, rounds=rounds)
    return replace(job, recipe=replace(recipe, step_decay=recipe.step_decay ** (1 / share)))


def local(job: Job) -> Line:
    """Every client's own model on test data of its rotation, of the other one, and the authors' mix (D10)."""
    train, tests = job.federation.train, job.federation.test
    assert tests is not None
    right = tested_on_all(job, PART)  # [m, test clients]
    assert train.true_cluster is not None
    assert tests.true_cluster is not None
    own = torch.from_numpy(train.true_cluster[:, None] == tests.true_cluster[None, :])
    sizes = torch.from_numpy(tests.sizes).double().expand_as(right)
    fair, other = (((right * which).sum(1) / (sizes * which).sum(1)).mean().item() for which in (own, ~own))
    return {
        "test_accuracy": fair,
        "test_accuracy_other_rotation": other,
        "test_accuracy_authors_rule": (fair + other) / 2,
        "epochs": job.recipe.rounds * (job.recipe.local_epochs or 0),
    }


def _job(unit: Unit) -> Job:
    if not unit.quick:
        return jobs.cifar(unit.seed, ROUNDS)
    job = jobs.cifar(unit.seed, QUICK_ROUNDS, clients=40, test_clients=8)
    recipe = replace(job.recipe, local_epochs=None, batch_size=None, l2=0.0, l2_layers=(), augment=False)
    recipe = replace(recipe, local_steps=10, step_size=0.05, step_decay=1.0, participation=0.5)
    return replace(job, recipe=recipe, model=lambda: mlp(3072, 10, (100,)))


EXPERIMENTS = {
    "rotated-cifar": Experiment(
        name="rotated-cifar",
        title="Rotated CIFAR-10 (Table 1)",
        full=Scale({"m=200 n=500": tuple(ROWS)}, 5),
        quick=Scale({"m=40 n=500": tuple(ROWS)}, 2),
        run=run,
        metrics=(
            "test_accuracy",
            "best_test_accuracy",
            "test_accuracy_authors_rule",
            "cluster_accuracy",
            "live_clusters",
            "all_right",
            "bytes",
        ),
        about="k = 2 rotations, the authors' network, 20 of 200 clients in each of 600 rounds, 5 epochs of "
        "batch 50, steps 0.25 x 0.99^t, random crops and flips; the last round counts. ifca-plain with the "
        "authors' redraw. local: 60 turns for each client, as many as it has on average in the federation. "
        "On CUDA layers in bfloat16, parameters and sums in float32.",
        about_quick="40 clients, half of them a round, an MLP of 100 hidden units and full-batch steps "
        f"instead of the convolutional network, {QUICK_ROUNDS} rounds, two seeds",
        paper={
            ("m=200 n=500", "ifca", "test_accuracy"): (81.51, 1.37),
            ("m=200 n=500", "ifca-plain", "test_accuracy"): (81.51, 1.37),
            ("m=200 n=500", "global", "test_accuracy"): (77.87, 0.39),
            ("m=200 n=500", "local", "test_accuracy_authors_rule"): (33.97, 1.19),
        },
        deviations=("D6", "D7", "D8", "D9", "D10", "D12", "D17", "D19", "D37"),
        data=lambda _setting: ("cifar10",),
    )
}
