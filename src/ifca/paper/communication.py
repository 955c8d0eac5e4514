"""Bytes to reach an accuracy: what the paper's two savings save, and what a k that is too large costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ifca.core.callbacks import Record
from ifca.paper import jobs
from ifca.paper.frame import Experiment, Scale
from ifca.paper.measure import clusters
from ifca.runs.units.unit import Line, Unit
from ifca.training import fit

GOALS = (80, 90)  # percent
STABLE: dict[str, Any] = {"stable_after": 3}
SHARED: dict[str, Any] = {"shared": ("fc1",)}
VARIANTS: dict[str, dict[str, Any]] = {
    "k models": {},
    "stable identities": STABLE,
    "weight sharing": SHARED,
    "both savings": {**STABLE, **SHARED},
    "k=8 asked": {"k": 8},
    "k=8 asked and stable identities": {"k": 8, **STABLE},
}
ALGORITHMS = ("ifca", "ifca-plain")


def run(unit: Unit, device: torch.device) -> Line:
    """A training that is tested after every round."""
    job = jobs.placed(jobs.digits(unit.seed, rounds=30 if unit.quick else 60), device)
    changes = {"algorithm": unit.algorithm, "evaluate_every": 1, **VARIANTS.get(unit.setting, {})}
    fitted = fit(replace(job, recipe=replace(job.recipe, **changes)))
    curve = bytes_and_accuracy(fitted.history)
    line: Line = {"test_accuracy": curve[-1][1], "bytes": curve[-1][0], **clusters(fitted)}
    for goal in GOALS:
        line[f"bytes_to_{goal}"] = bytes_to(goal / 100, curve)
    return {**line, "curve": [[sent, round(accuracy, 4)] for sent, accuracy in curve]}


def bytes_and_accuracy(history: list[Record]) -> list[tuple[int, float]]:
    """After each round: bytes so far, both ways, and test accuracy."""
    total, curve = 0, []
    for record in history:
        total += record["bytes_down"] + record["bytes_up"]
        curve.append((total, float(record["test_accuracy"])))
    return curve


def bytes_to(goal: float, curve: list[tuple[int, float]]) -> int | None:
    """When the accuracy was first reached; None: never."""
    return next((sent for sent, accuracy in curve if accuracy >= goal), None)


EXPERIMENTS = {
    "communication": Experiment(
        name="communication",
        title="Bytes to reach an accuracy",
        full=Scale({**dict.fromkeys(VARIANTS, ALGORITHMS), "one model": ("global",)}, 10),
        quick=Scale({**dict.fromkeys(VARIANTS, ALGORITHMS), "one model": ("global",)}, 2),
        run=run,
        metrics=("bytes_to_80", "bytes_to_90", "test_accuracy", "bytes", "all_right"),
        about="Rotated Digits, 112 clients, four true clusters, MLP 64-100-10 (7,510 parameters, 6,500 of "
        "them in the first layer), 60 rounds; bytes of all clients, down and up. Where nothing else is said "
        "k = 4 is known. Stable identities: after 3 rounds without a change clients are sent their own model "
        "only, with all k every tenth round. Weight sharing: the first layer is shared, the last is each "
        "cluster's own. Bytes to an accuracy: mean of the runs that reach it.",
        about_quick="30 rounds, two seeds",
        deviations=("D17", "D23", "D26", "D32"),
    )
}
