"""FEMNIST with weight sharing: the paper's Table 2."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ifca.data import Federation
from ifca.methods.local_models import LOCAL
from ifca.models import mlp
from ifca.models.networks import Standardise
from ifca.paper import jobs
from ifca.paper.cnn_alone import tested_on_own
from ifca.paper.frame import Experiment, Paper, Scale
from ifca.paper.measure import measured
from ifca.runs.units.unit import Line, Unit
from ifca.training import Job, fit

ROUNDS, EVERY, PART = 1200, 100, 60
LOCAL_EPOCHS, QUICK_EPOCHS, LOCAL_STEP = 60, 25, 0.1
QUICK_ROUNDS, QUICK_EVERY, QUICK_WRITERS = 150, 50, 60
FULL = {
    "k=2": ("ifca", "ifca-plain", "oneshot"),
    "k=3": ("ifca", "ifca-plain", "oneshot"),
    "k=4": ("ifca", "ifca-plain"),
    "k=5": ("ifca", "ifca-plain"),
    "k=6": ("ifca", "ifca-plain"),
    "baselines": ("global", "local"),
}
QUICK = {"k=2": ("ifca", "ifca-plain", "oneshot"), "k=4": ("ifca",), "baselines": ("global", "local")}

CHANGES: dict[str, dict[str, Any]] = {"oneshot": {"shared": ()}}  # its clusters know nothing of each other


def run(unit: Unit, device: torch.device) -> Line:
    """One training."""
    k = 1 if unit.setting == "baselines" else int(unit.setting.removeprefix("k="))
    job = jobs.writers(unit.seed, k, ROUNDS)
    job = jobs.placed(_quick(job) if unit.quick else job, device, "tf32")
    every = QUICK_EVERY if unit.quick else EVERY
    changes = {"algorithm": unit.algorithm, "evaluate_every": every, **CHANGES.get(unit.algorithm, {})}
    job = replace(job, recipe=replace(job.recipe, **changes))
    if job.method.personal:
        return local(job, QUICK_EPOCHS if unit.quick else LOCAL_EPOCHS)
    return {**measured(fit(job)), **_data(job)}


def local(job: Job, epochs: int) -> Line:
    """Every writer's own model on its own test data, trained until its training loss is near 0 (D39)."""
    recipe = replace(job.recipe, algorithm=LOCAL.name, rounds=epochs, local_epochs=1, shared=())
    recipe = replace(recipe, step_size=LOCAL_STEP, step_decay=1.0)
    accuracy, loss = tested_on_own(replace(job, recipe=recipe), PART)
    return {
        "train_loss": loss,
        "test_accuracy": accuracy,
        "test_accuracy_train_rule": accuracy,  # a writer has one model: both rules are the same
        "epochs": epochs,
        **_data(job),
    }


def _data(job: Job) -> Line:
    """Which writers: LEAF's sample differs from machine to machine."""
    return {"writers": len(job.federation.train), "data": job.federation.fingerprint}


def _quick(job: Job) -> Job:
    """Sixty writers and an MLP whose hidden layer is shared."""
    writers = min(QUICK_WRITERS, len(job.federation.train))
    train, test = job.federation.train.subset(range(writers)), job.federation.test
    assert test is not None
    mine = [i for i, name in enumerate(test.ids) if name in set(train.ids)]
    data = Federation(train, test.subset(mine), job.federation.classes)
    recipe = replace(job.recipe, rounds=QUICK_ROUNDS, shared=("fc1",), step_size=0.1)
    recipe = replace(recipe, participation=min(1.0, jobs.WRITERS / writers))
    return replace(job, federation=data, recipe=recipe, model=_small)


def _small() -> nn.Module:
    layers = OrderedDict(standardise=Standardise(), **dict(mlp(784, 62, (100,)).named_children()))
    return nn.Sequential(layers)


def _paper() -> Paper:
    """By the train rule, which the authors use here (D13)."""
    table = {
        ("k=2", "ifca"): (87.99, 0.35),
        ("k=3", "ifca"): (87.89, 0.52),
        ("k=2", "oneshot"): (87.41, 0.39),
        ("k=3", "oneshot"): (87.38, 0.37),
        ("baselines", "global"): (84.45, 0.51),
        ("baselines", "local"): (75.85, 0.72),
    }
    table |= {(setting, "ifca-plain"): table[setting, "ifca"] for setting in ("k=2", "k=3")}
    return {(*which, "test_accuracy_train_rule"): value for which, value in table.items()}


EXPERIMENTS = {
    "femnist": Experiment(
        name="femnist",
        title="FEMNIST (Table 2): LEAF FEMNIST, 395-writer subset",
        full=Scale(FULL, 5),
        quick=Scale(QUICK, 2),
        run=run,
        metrics=(
            "test_accuracy_train_rule",
            "test_accuracy",
            "best_test_accuracy_train_rule",
            "best_test_accuracy",
            "live_clusters",
            "bytes",
        ),
        about="359 writers with at least 100 images, all layers shared but the last and averaged over all "
        "participants throughout; 10 writers in each of 1200 rounds, one epoch of batch 10, steps "
        "0.03 x 0.998^t; the last round counts, the best of every 100th stands beside it. "
        f"local: {LOCAL_EPOCHS} epochs for each writer, with steps of {LOCAL_STEP:g}. One-shot trains "
        "all layers of a cluster apart. On CUDA products in TF32.",
        about_quick=f"{QUICK_WRITERS} writers, an MLP of 100 shared hidden units, {QUICK_ROUNDS} rounds, "
        "two seeds; local models are far behind, but so few writers do not support clusters",
        paper=_paper(),
        deviations=("D11", "D12", "D13", "D14", "D17", "D19", "D20", "D22", "D37", "D39"),
        data=lambda _setting: ("femnist",),
    )
}
