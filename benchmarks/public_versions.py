"""What do the defects of public IFCA versions cost? Each is switched on in plain IFCA and measured.

python -m benchmarks.public_versions [--out results/public-versions] [--regime uneven] [--method equal,ifca]
                                     [--seeds 0:10] [--time-limit MINUTES]

A line of OUT/runs.jsonl for every training, never repeated: the same command goes on where it stopped. Of
them OUT/summary.json and OUT/table.md are made; docs/done-right.md shows the table. scikit-learn's digits
are the data. Seeds from 1000 on are for trying and are in no table.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from benchmarks.public_doubles import DOUBLES, FIRST
from benchmarks.public_table import write_table

from ifca.bench.regimes import Partitioned, Regime, small_mlp, turns
from ifca.bench.rivals import RIVALS
from ifca.bench.sets import digits
from ifca.core.errors import InvalidInput
from ifca.core.identity import identity
from ifca.core.initial import best_restart
from ifca.core.metrics import adjusted_rand_index
from ifca.data import Deal
from ifca.methods import register
from ifca.runs.units.choice import chosen_names, chosen_seeds
from ifca.runs.units.execute import execute
from ifca.runs.units.time_left import main_of_units
from ifca.runs.units.unit import Line, Unit
from ifca.training import Fitted, Job, fit

NAME = "public-versions"
SEEDS = range(10)  # the table's
BESIDE = ("ifca", "ifca-plain", "best-of-5", "global")
"""Correct methods in the same table."""
QUARTERS = turns(0, 90, 180, 270)
REGIMES = {
    regime.name: regime
    for regime in (
        Regime(
            "rotated-digits",
            "24 clients, 4 turns, 50 images each, 30 rounds",
            4,
            Partitioned(digits, Deal(24, 50, 40), QUARTERS),
            {"rounds": 30},
            small_mlp,
        ),
        Regime(
            "uneven",
            "16 clients, 4 turns, labels by Dirichlet(1), lognormal sizes (sigma 1, median 60), 30 rounds",
            4,
            Partitioned(digits, Deal(16, 60, 40, alpha=1.0, size_sigma=1.0), QUARTERS),
            {"rounds": 30},
            small_mlp,
        ),
        Regime(
            "part",
            "20 clients, 4 turns, 60 images each, 60 rounds; a quarter of the clients takes part in a round",
            4,
            Partitioned(digits, Deal(20, 60, 40), QUARTERS),
            {"participation": 0.25, "rounds": 60},
            small_mlp,
        ),
    )
}


def job_of(regime: str, method: str, seed: int) -> Job:
    """What a unit trains; a double is made for its job and registered."""
    job = REGIMES[regime].job(seed)
    if method in DOUBLES:
        double = replace(DOUBLES[method].make(job), name=method, title=method, about=DOUBLES[method].what)
        return replace(job, recipe=replace(job.recipe, algorithm=register(double).name))
    return replace(job, recipe=replace(job.recipe, **RIVALS[method].recipe))


def run(unit: Unit, _device: torch.device) -> Line:
    """Train and measure one unit: setting is the regime, algorithm the method."""
    job = job_of(unit.setting, unit.algorithm, unit.seed)
    starts = RIVALS[unit.algorithm].starts if unit.algorithm in RIVALS else 1
    fits = [fit(job, restart=restart) for restart in range(starts)]
    return measured(fits[best_restart([fitted.train_loss for fitted in fits])])


def measured(fitted: Fitted) -> Line:
    """Two views: clients served by the model with the lowest training loss, and as the version reports."""
    true = fitted.job.federation.train.true_cluster
    assert true is not None
    served = identity(fitted.train.loss)
    labels = fitted.state.memory.get(FIRST, fitted.labels)
    return {
        "accuracy": accuracy(fitted, served),
        "reported": accuracy(fitted, fitted.labels),
        "ari": adjusted_rand_index(true, served.numpy()),
        "reported_ari": adjusted_rand_index(true, labels.numpy()),
        "live": len(set(served.tolist())),
        "train_loss": float(fitted.train.loss.gather(1, served[:, None]).mean()),
    }


def accuracy(fitted: Fitted, labels: torch.Tensor) -> float:
    """Mean over clients of the accuracy on their test samples; labels: [m] who is served by which model."""
    test = fitted.test
    assert test is not None
    owner = torch.from_numpy(fitted.job.federation.test_owner)
    return float((test.correct(labels[owner]) / test.sizes).mean())


def units(regimes: tuple[str, ...], methods: tuple[str, ...], seeds: range | None) -> list[Unit]:
    """Seed by seed, so that a part is a fair part."""
    known = (*BESIDE, *DOUBLES)
    for kind, names, allowed in (("regime", regimes, REGIMES), ("method", methods, known)):
        for name in names:
            if name not in allowed:
                raise InvalidInput(f"unknown {kind} {name} (known: {', '.join(allowed)})")
    return [
        Unit(NAME, regime, method, seed)
        for seed in (SEEDS if seeds is None else seeds)
        for regime in regimes or REGIMES
        for method in methods or known
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results", NAME))
    for name in ("--regime", "--method", "--seeds"):
        parser.add_argument(name)
    parser.add_argument("--time-limit", type=float, help="minutes after which no unit is begun")
    given = parser.parse_args()

    def say(line: Line, done: int, of: int) -> None:
        score = f"{100 * line['accuracy']:.1f}" if "accuracy" in line else "diverged"
        print(done, of, line["setting"], line["algorithm"], line["seed"], score, line["seconds"], flush=True)

    with main_of_units():
        todo = units(chosen_names(given.regime), chosen_names(given.method), chosen_seeds(given.seeds))
        seconds = None if given.time_limit is None else 60 * given.time_limit
        execute(todo, given.out, run, device="cpu", on_line=say, seconds=seconds)
        write_table(given.out, {name: regime.why for name, regime in REGIMES.items()})


if __name__ == "__main__":
    main()
