"""How often are all clusters found from a random start: plain IFCA, restarts of it, and the default."""

from __future__ import annotations

from dataclasses import replace

import torch

from ifca.core.initial import best_restart
from ifca.data import Federation
from ifca.methods.ifca_plain import IFCA_PLAIN
from ifca.paper import jobs
from ifca.paper.frame import Experiment, Scale
from ifca.paper.measure import clusters
from ifca.runs.units.unit import Line, Unit
from ifca.training import Fitted, fit

RESTARTS = (1, 5, 10)
DIGITS, MNIST = "rotated-digits", "rotated-mnist m=1200 n=200"
ROUNDS = {DIGITS: 30, MNIST: 35}
RESTARTED = "restarts"  # of plain IFCA
ALGORITHMS = (RESTARTED, "ifca")


def run(unit: Unit, device: torch.device) -> Line:
    """One training of the default algorithm, or ten starts of plain IFCA judged by the clients' loss."""
    rounds = ROUNDS[unit.setting]
    job = (
        jobs.digits(unit.seed, rounds=rounds)
        if unit.setting == DIGITS
        else jobs.mnist(200, unit.seed, rounds=rounds)
    )
    job = jobs.placed(replace(job, federation=Federation(job.federation.train, None, 10)), device)
    if unit.algorithm != RESTARTED:
        return _verdict(fit(replace(job, recipe=replace(job.recipe, algorithm=unit.algorithm))))
    plain = replace(job, recipe=replace(job.recipe, algorithm=IFCA_PLAIN.name))
    starts = [_verdict(fit(plain, restart=r)) for r in range(max(RESTARTS))]
    return {"starts": starts}


def _verdict(fitted: Fitted) -> Line:
    found = clusters(fitted)
    keep = ("all_right", "live_clusters", "cluster_accuracy")
    return {"train_loss": fitted.train_loss, **{name: found[name] for name in keep}}


def spread(line: Line) -> list[Line]:
    """The first start alone, and the best of several by the clients' training loss."""
    if "starts" not in line:
        return [line]
    starts = line["starts"]
    common = {name: value for name, value in line.items() if name != "starts"}

    def best(of: int) -> Line:
        return dict(starts[best_restart([start["train_loss"] for start in starts[:of]])])

    return [
        {**common, **best(of), "algorithm": _name(of), "seconds": line["seconds"] * of / len(starts)}
        for of in RESTARTS
    ]


def _name(of: int) -> str:
    return "ifca-plain" if of == 1 else f"ifca-plain, best of {of} starts"


def _data(setting: str) -> tuple[str, ...]:
    return ("mnist",) if setting == MNIST else ()


EXPERIMENTS = {
    "initialisation": Experiment(
        name="initialisation",
        title="How often are all clusters found?",
        full=Scale(dict.fromkeys((DIGITS, MNIST), ALGORITHMS), 40),
        quick=Scale({DIGITS: ALGORITHMS}, 6),
        run=run,
        metrics=("all_right", "cluster_accuracy"),
        about=f"k = 4; {ROUNDS[DIGITS]} rounds of Rotated Digits (112 clients), {ROUNDS[MNIST]} of Rotated "
        "MNIST. A run is right if every client is in its true cluster and every true cluster has a model. "
        "Restarts are chosen by the clients' training loss; they cost as many times the communication. IFCA "
        "(default) is one run.",
        about_quick="Rotated Digits only, 6 seeds",
        deviations=("D4", "D30", "D32", "D37"),
        data=_data,
        spread=spread,
    )
}
