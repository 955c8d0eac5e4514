"""How fast are the clients' identities found? The paper's figure of cluster accuracy by round."""

from __future__ import annotations

from dataclasses import replace

import torch

from ifca.core.callbacks import Record
from ifca.paper import jobs
from ifca.paper.frame import Experiment, Scale
from ifca.paper.measure import clusters
from ifca.paper.table1_cifar import ROWS
from ifca.paper.table1_mnist import QUICK as QUICK_MNIST
from ifca.paper.table1_mnist import SAMPLES, SHARE
from ifca.runs.units.unit import Line, Unit
from ifca.training import Job, fit

ROUNDS = 40
CIFAR = "rotated-cifar"
MNIST = {f"rotated-mnist {setting}": n for setting, n in SAMPLES.items()}
QUICK = {f"rotated-mnist {setting}": n for setting, n in QUICK_MNIST.items()}
ALGORITHMS = ("ifca", "ifca-plain")


def run(unit: Unit, device: torch.device) -> Line:
    """The first rounds of a training; nothing is tested."""
    job = _job(unit, device)
    changes = ROWS[unit.algorithm] if unit.setting == CIFAR else {}
    recipe = replace(job.recipe, **{"algorithm": unit.algorithm, **changes})
    federation = replace(job.federation, test=None)
    fitted = fit(replace(job, recipe=recipe, federation=federation))
    right = [round(record["cluster_accuracy"], 4) for record in fitted.history]
    line = {**clusters(fitted), "cluster_accuracy_by_round": right}
    if line["all_right"]:  # of a run that goes wrong there is no such round
        line["rounds_until_right"] = first_right(fitted.history)
    return line


def first_right(history: list[Record]) -> int:
    """The first round (from 1) from which on every participant is in the right cluster."""
    wrong = [record["round"] + 1 for record in history if record["cluster_accuracy"] < 1]
    return max(wrong, default=0) + 1


def _job(unit: Unit, device: torch.device) -> Job:
    if unit.setting == CIFAR:
        return jobs.placed(jobs.cifar(unit.seed, ROUNDS), device, "bfloat16")
    if not unit.quick:
        return jobs.placed(jobs.mnist(MNIST[unit.setting], unit.seed, rounds=ROUNDS), device)
    n = QUICK[unit.setting]
    return jobs.placed(jobs.mnist(n, unit.seed, rounds=ROUNDS, clients=240_000 // n // SHARE), device)


EXPERIMENTS = {
    "cluster-accuracy": Experiment(
        name="cluster-accuracy",
        title="Cluster accuracy by round",
        full=Scale(dict.fromkeys([*MNIST, CIFAR], ALGORITHMS), 5),
        quick=Scale(dict.fromkeys(QUICK, ALGORITHMS), 2),
        run=run,
        metrics=("rounds_until_right", "cluster_accuracy", "all_right"),
        about=f"The first {ROUNDS} rounds of the recipes of Table 1. The accuracy of a round is that of its "
        "participants' identities, under the best matching; 'right from round' is the mean over the runs "
        "that end with all clients right. The paper says: all clusters found after about 30 rounds of "
        "Rotated MNIST and 10 of Rotated CIFAR. ifca-plain on CIFAR with the authors' redraw.",
        about_quick=f"one client in {SHARE}, no CIFAR, two seeds",
        paper={
            (setting, algorithm, "rounds_until_right"): (10.0 if setting == CIFAR else 30.0, None)
            for setting in [*MNIST, CIFAR]
            for algorithm in ALGORITHMS
        },
        deviations=("D9", "D37"),
        data=lambda setting: ("cifar10",) if setting == CIFAR else ("mnist",),
    )
}
