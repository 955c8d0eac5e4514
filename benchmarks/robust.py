"""What do attacks cost, by rule? A cluster's clients attack; the honest clients are measured.

python -m benchmarks.robust [--out results/robust] [--data digits-2,digits-4] [--attack scale,drag]
                            [--rules mean,clip] [--shares 0.1,0.2,0.5] [--seeds 0:3] [--method ifca]
                            [--device cuda] [--workers 2] [--time-limit MINUTES] [--no-run]

A line of OUT/runs.jsonl for every training, never repeated: the same command goes on where it stopped. Of
them OUT/summary.json and OUT/table.md are made. Shares are of the attacked cluster (of concentrate: of all
clients). Another --method needs another --out. A machine with torch and numpy alone can do --data mnist-1200
--method ifca-plain; the founding of ifca needs scikit-learn. The linear mixture is BR-IFCA's: Byzantine
clients, 5% of all, have a theta of their own.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from benchmarks.anchor_linear import K, mixture
from benchmarks.robust_data import BYZANTINE, MIXTURE, SETTINGS
from benchmarks.robust_table import NONE, Case, write_table

from ifca.core.attacks import KINDS, Attack, attackers
from ifca.core.errors import InvalidInput
from ifca.core.metrics import cluster_accuracy
from ifca.data import Clients
from ifca.runs.units.choice import chosen_names, chosen_seeds
from ifca.runs.units.execute import execute
from ifca.runs.units.time_left import main_of_units
from ifca.runs.units.unit import Line, Unit
from ifca.training import Fitted, fit
from ifca.training.attack_effect import backdoor_success, served

NAME = "robust"
SEEDS = range(3)
SHARES = (0.1, 0.2, 0.5)
RULES = (
    *("mean", "clip", "median", "trimmed-mean", "geometric-median", "krum", "multi-krum"),
    *("centred-clipping", "nnm+trimmed-mean"),
)
OWN = "own-theta"  # the Byzantine clients of the linear mixture


def run(unit: Unit, device: torch.device, method: str) -> Line:
    """Train and measure one unit: setting is the data, algorithm the case."""
    case = Case.read(unit.algorithm)
    job = SETTINGS[unit.setting].job(unit.seed, method, case.rule, device)
    if unit.setting == MIXTURE:
        return recovered(fit(job), unit.seed)
    attack = None if case.attack == NONE else attack_of(case, job.federation.train, unit.seed)
    train = replace(job.federation.train, true_cluster=None)  # nobody is compared with them in rounds
    fitted = fit(replace(job, federation=replace(job.federation, train=train), attack=attack))
    return {"method": method, **measured(fitted, attack)}


def attack_of(case: Case, clients: Clients, seed: int) -> Attack:
    """Who attacks in a unit."""
    return attackers(
        case.attack,
        ids=clients.ids,
        keys=clients.keys,
        true=clients.true_cluster,
        share=case.share,
        seed=seed,
    )


def measured(fitted: Fitted, attack: Attack | None) -> Line:
    """Right predictions and samples by true cluster; without attack by test client, to leave some out."""
    if attack is None:
        test, tests = fitted.test, fitted.job.federation.test
        assert test is not None
        assert tests is not None
        assert tests.true_cluster is not None
        parts = (
            fitted.job.federation.test_owner,
            tests.true_cluster,
            test.correct(test.paper_rule),
            test.sizes,
        )
        columns = [[int(value) for value in part.tolist()] for part in parts]
        return {"tests": [list(row) for row in zip(*columns, strict=True)]}
    found = served(fitted, attack)
    return {
        "attackers": list(attack.rows),
        "attacked": attack.cluster,
        "clusters": [[c, found.right[c], found.samples[c]] for c in sorted(found.samples, key=str)],
        "backdoor_success": backdoor_success(fitted, attack),
        "halved": len(fitted.state.progress.halved),
    }


def recovered(fitted: Fitted, seed: int) -> Line:
    """Of the linear mixture: how far theta* are from the nearest models, and the honest clients' clusters."""
    star = mixture(seed)[1]
    theta = fitted.state.theta["fc1.weight"].flatten(1)[fitted.state.live].cpu()
    true = fitted.job.federation.train.true_cluster
    assert true is not None
    honest = true < K
    return {
        "method": fitted.job.recipe.algorithm,
        "error": float(torch.cdist(star, theta).min(1).values.mean()),
        "cluster_accuracy": cluster_accuracy(true[honest], fitted.labels.numpy()[honest]),
    }


def units(
    data: tuple[str, ...],
    attacks: tuple[str, ...],
    rules: tuple[str, ...],
    shares: tuple[float, ...],
    seeds: range,
) -> list[Unit]:
    """Seed by seed, and those without attack first, so that a part is a fair part."""
    for kind, names, allowed in (("data", data, SETTINGS), ("attack", attacks, KINDS)):
        for name in names:
            if name not in allowed:
                raise InvalidInput(f"unknown {kind} {name} (known: {', '.join(allowed)})")
    found = []
    for seed in seeds:
        for name in data or SETTINGS:
            if name == MIXTURE:
                cases = [Case(OWN, BYZANTINE, rule) for rule in rules]
            else:
                cases = [Case(NONE, 0.0, rule) for rule in dict.fromkeys(("mean", *rules))]
                cases += [Case(a, s, rule) for a in attacks or KINDS for s in shares for rule in rules]
            found += [Unit(NAME, name, case.name, seed) for case in cases]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results", NAME))
    for name in ("--data", "--attack", "--rules", "--seeds"):
        parser.add_argument(name)
    parser.add_argument("--shares", default=",".join(map(str, SHARES)))
    parser.add_argument("--method", default="ifca")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--time-limit", type=float, help="minutes after which no unit is begun")
    parser.add_argument("--no-run", action="store_true", help="only make the table of what is there")
    given = parser.parse_args()

    def say(line: Line, done: int, of: int) -> None:
        print(done, of, line["setting"], line["algorithm"], line["seed"], line["seconds"], flush=True)

    with main_of_units():
        shares = tuple(float(share) for share in chosen_names(given.shares))
        rules = chosen_names(given.rules) or RULES
        names = chosen_names(given.data), chosen_names(given.attack)
        todo = units(*names, rules, shares, chosen_seeds(given.seeds) or SEEDS)
        seconds = None if given.time_limit is None else 60 * given.time_limit
        if not given.no_run:
            trained = partial(run, method=given.method)
            where = {"device": given.device, "workers": given.workers}
            execute(todo, given.out, trained, **where, on_line=say, seconds=seconds)
        write_table(given.out)


if __name__ == "__main__":
    main()
