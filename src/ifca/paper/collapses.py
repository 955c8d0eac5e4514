"""How often are all clusters found, in ten settings? Plain IFCA and the default over many seeds.

The table of docs/collapse.md. Nothing here looks at true clusters or test data before a run has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ifca.engines.precision import Precision
from ifca.paper import jobs
from ifca.paper.frame import Experiment, Scale
from ifca.paper.measure import measured
from ifca.paper.panels import panels
from ifca.paper.success import distance_to, one_start, verdict
from ifca.runs.units.lines import key
from ifca.runs.units.unit import Line, Unit
from ifca.training import Job, fit

PAIR = ("ifca-plain", "ifca")
WHOLE = "global"
MNIST_ROUNDS, CIFAR_ROUNDS = 35, 25
POINT = "sigma=0.1 R=0.5"
TRUTH = ("cluster_accuracy", "all_right", "cluster_accuracy_by_round")  # where there are no true clusters
DIGITS, SYNTHETIC = "rotated-digits", f"synthetic k=4 {POINT}"


@dataclass(frozen=True)
class Setting:
    """A row of the table: the job of a seed, the number of seeds, and when a run has succeeded."""

    job: Callable[[int], Job]
    seeds: int
    data: tuple[str, ...] = ()
    precision: Precision = "float32"  # on CUDA
    succeeds: Callable[[Line, Line], bool] | None = None
    """Against the global model of the same seed; None: every client is in the right cluster."""

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The pair, and whom it is compared with."""
        return PAIR if self.succeeds is None else (*PAIR, WHOLE)


def _mnist(samples: int, k: int = 4, **options: tuple[float, ...]) -> Callable[[int], Job]:
    """The paper's recipe for Rotated MNIST, fewer rounds."""
    return lambda seed: jobs.mnist(samples, seed, k, rounds=MNIST_ROUNDS, **options)


def _several_better_than_one(line: Line, whole: Line) -> bool:
    """Each client's model chosen by its training loss."""
    rule = "test_accuracy_train_rule"
    return bool(line["live_clusters"] >= 2 and line[rule] > whole[rule])


def _no_worse(line: Line, whole: Line) -> bool:
    """At most 0.3 points below."""
    return bool(line["test_accuracy"] >= whole["test_accuracy"] - 0.003)


MNIST = ("mnist",)
SETTINGS = {
    "rotated-mnist m=1200 n=200": Setting(_mnist(200), 40, MNIST),
    "rotated-mnist m=2400 n=100": Setting(_mnist(100), 40, MNIST),
    "rotated-mnist m=4800 n=50": Setting(_mnist(50), 40, MNIST),
    "rotated-cifar": Setting(lambda seed: jobs.cifar(seed, CIFAR_ROUNDS), 24, ("cifar10",), "bfloat16"),
    DIGITS: Setting(jobs.digits, 100),
    "femnist": Setting(jobs.writers, 5, ("femnist",), "tf32", _several_better_than_one),
    "rotated-mnist k=6 asked": Setting(_mnist(200, 6), 20, MNIST),
    "rotated-mnist 70/20/5/5%": Setting(_mnist(200, shares=(0.7, 0.2, 0.05, 0.05)), 20, MNIST),
    "mnist not rotated": Setting(_mnist(200, angles=(0, 0, 0, 0)), 5, MNIST, succeeds=_no_worse),
}
SEEDS = {name: setting.seeds for name, setting in SETTINGS.items()} | {SYNTHETIC: 40}
ALGORITHMS = {name: setting.algorithms for name, setting in SETTINGS.items()} | {SYNTHETIC: PAIR}


def run(unit: Unit, device: torch.device) -> Line:
    """One training."""
    if unit.setting == SYNTHETIC:
        return synthetic(unit, device)
    setting = SETTINGS[unit.setting]
    job = jobs.placed(setting.job(unit.seed), device, setting.precision)
    line = measured(fit(_by(job, unit.algorithm)))
    if setting.succeeds is None:
        return {**line, "success": line["all_right"]}
    return {name: value for name, value in line.items() if name not in TRUTH}


def synthetic(unit: Unit, device: torch.device) -> Line:
    """One initialisation and one step at a point of panel (b), by the paper's rule: dist <= 0.6 sigma."""
    panel = panels(unit.quick)["synthetic-b"]
    point = next(point for point in panel.points if point.name == POINT)
    job, star = one_start(panel, point, unit.seed, device)
    fitted = fit(_by(job, unit.algorithm))
    return {**measured(fitted), **verdict(distance_to(star, fitted), point)}


def compared(lines: list[Line]) -> list[Line]:
    """Lines with what takes two of them: success against the global model, cost beside plain IFCA's."""
    known = {key(line): line for line in lines if "diverged" not in line}
    return [{**line, **_beside(line, known)} for line in lines]


def _beside(line: Line, known: dict[tuple[str, str, int], Line]) -> Line:
    setting, algorithm, seed = key(line)
    plain, whole = (known.get((setting, other, seed)) for other in (PAIR[0], WHOLE))
    found: Line = {}
    if algorithm == PAIR[1] and plain and key(line) in known:
        found = {f"{cost}_ratio": line[cost] / plain[cost] for cost in ("bytes", "turns")}
    succeeds = SETTINGS[setting].succeeds if setting in SETTINGS else None
    if succeeds and whole and algorithm in PAIR and key(line) in known:
        found["success"] = succeeds(line, whole)
    return found


def _by(job: Job, algorithm: str) -> Job:
    return replace(job, recipe=replace(job.recipe, algorithm=algorithm))


EXPERIMENTS = {
    "collapse": Experiment(
        name="collapse",
        title="Collapse: from how many random starts are the clusters found?",
        full=Scale(ALGORITHMS, max(SEEDS.values()), SEEDS),
        quick=Scale(dict.fromkeys((DIGITS, SYNTHETIC), PAIR), 6),
        run=run,
        metrics=(
            *("success", "cluster_accuracy", "test_accuracy", "test_accuracy_train_rule"),
            *("bytes", "bytes_ratio", "turns_ratio"),
        ),
        about=f"One start each: {MNIST_ROUNDS} rounds of Rotated MNIST, {CIFAR_ROUNDS} of Rotated CIFAR (10% "
        "of the clients in each), 60 of Rotated Digits, 1200 of FEMNIST with k = 3, 300 of panel (b)'s point "
        f"{POINT} with one step; k is the number of true clusters where nothing else is said. A run succeeds "
        "if every client is in its true cluster and every true cluster has a model; synthetic: by the "
        "paper's rule; femnist: with two live clusters or more and an accuracy (train rule) above that of "
        "the global model of the same seed; mnist not rotated, where there are no clusters and k = 4 is "
        "asked: with an accuracy at most 0.3 points below the global model's. Ratios are the default's bytes "
        "and clients' turns over plain IFCA's of the same seed. On CUDA CIFAR in bfloat16, FEMNIST in TF32.",
        about_quick="Rotated Digits, and the synthetic point with d = 100, a fifth of the clients and half "
        "of the samples; 6 seeds",
        deviations=("D1", "D2", "D3", "D11", "D13", "D32", "D37", "D38", "D39"),
        data=lambda setting: SETTINGS[setting].data if setting in SETTINGS else (),
        compared=compared,
    )
}
