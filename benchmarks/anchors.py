"""Published tables beside ours: the same settings, the source's number, and what differs.

python -m benchmarks.anchors [--out results/anchors] [--setting CLoVE] [--method ifca,clove] [--seeds 1:4]
                             [--device cuda] [--precision tf32] [--autotune] [--workers 8]
                             [--time-limit MINUTES] [--only-table]

A line of OUT/runs.jsonl for every training, never repeated: the same command goes on where it stopped. Of
them OUT/summary.json and OUT/table.md are made; docs/anchors.md shows the table. --setting: part of a name.
MNIST and CIFAR-10 must be there (ifca data get); where FASHION_MNIST names a folder with Fashion-MNIST's four
idx files, PFLlib's settings are trained on them, too. --precision: of products on a GPU; TF32 as
convolutions are in the sources' framework. --autotune: cuDNN tries its algorithms and takes the fastest.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import get_args

import torch
from benchmarks import anchor_linear
from benchmarks.anchor_settings import CLOVES, PFLLIBS, TURNED
from benchmarks.anchor_table import write_table

from ifca.core.errors import InvalidInput
from ifca.core.metrics import adjusted_rand_index
from ifca.core.recipe import Recipe
from ifca.engines.precision import Precision
from ifca.runs.units.choice import chosen_names, chosen_seeds
from ifca.runs.units.execute import execute
from ifca.runs.units.time_left import Estimate, main_of_units
from ifca.runs.units.unit import Line, Unit
from ifca.training import Fitted, Job, fit

NAME = "anchors"
ANCHORS = {anchor.name: anchor for anchor in (*CLOVES, *PFLLIBS, *TURNED)}
LINEAR = f"{anchor_linear.TABLE}: {anchor_linear.SETTING}"
LINEAR_SEEDS = tuple(range(1, 51))


def job_of(setting: str, method: str, seed: int, device: torch.device, precision: Precision = "tf32") -> Job:
    """What a unit trains. precision: on a GPU."""
    anchor = ANCHORS[setting]
    recipe = Recipe(**{**anchor.recipe, "seed": seed, **anchor.methods[method]})
    precision = precision if device.type == "cuda" else "float32"
    return Job(anchor.make(seed), recipe, anchor.model, device=device, precision=precision).placed()


def run(precision: Precision, autotune: bool, unit: Unit, device: torch.device) -> Line:
    """Train and measure one unit: setting is the anchor's name, algorithm the row's."""
    if unit.setting == LINEAR:
        return anchor_linear.run(unit.algorithm, unit.seed)
    torch.backends.cudnn.benchmark = autotune
    job = job_of(unit.setting, unit.algorithm, unit.seed, device, precision)
    return {**measured(fit(job)), "precision": job.precision}


def measured(fitted: Fitted) -> Line:
    """Last round, train rule: each client is tested with the model that it has in the end."""
    test, true = fitted.test, fitted.job.federation.train.true_cluster
    assert test is not None
    line: Line = {
        "accuracy": float((test.correct(test.train_rule) / test.sizes).double().mean()),
        "live": len(set(fitted.labels.tolist())),
        "train_loss": fitted.train_loss,
        "labels": fitted.labels.tolist(),
        "events": [
            [record["round"], *(event.get(name) for name in ("event", "cluster", "other", "p"))]
            for record in fitted.history
            for event in record.get("events") or ()
        ],
    }
    if true is not None and len(set(true.tolist())) > 1 and not fitted.job.method.personal:
        line["ari"] = adjusted_rand_index(true, fitted.labels.numpy())
    return line


def units(part: str, methods: tuple[str, ...], seeds: range | None) -> list[Unit]:
    """Seed by seed, so that a part is a fair part. part: of the settings' names."""
    found = {name: (anchor.seeds, tuple(anchor.methods)) for name, anchor in ANCHORS.items()}
    found[LINEAR] = (LINEAR_SEEDS, tuple(anchor_linear.METHODS))
    found = {name: what for name, what in found.items() if part in name}
    if not found:
        raise InvalidInput(f"no setting has {part} in its name (known: {'; '.join((*ANCHORS, LINEAR))})")
    todo = [
        (Unit(NAME, name, method, seed), at)
        for name, (own, rows) in found.items()
        for method in rows
        if not methods or method in methods
        for at, seed in enumerate(own if seeds is None else seeds)
    ]
    if not todo:
        raise InvalidInput(f"no row is called {', '.join(methods)}")
    return [unit for unit, _ in sorted(todo, key=lambda one: one[1])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results", NAME))
    parser.add_argument("--setting", default="")
    parser.add_argument("--method")
    parser.add_argument("--seeds")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--precision", choices=get_args(Precision), default="tf32")
    parser.add_argument("--autotune", action="store_true")
    parser.add_argument("--time-limit", type=float, help="minutes after which no unit is begun")
    parser.add_argument("--only-table", action="store_true", help="train nothing")
    given = parser.parse_args()
    estimate = Estimate()
    with main_of_units():
        if not given.only_table:
            todo = units(given.setting, chosen_names(given.method), chosen_seeds(given.seeds))
            execute(
                todo,
                given.out,
                partial(run, given.precision, given.autotune),
                device=given.device,
                workers=given.workers,
                on_line=lambda line, done, of: print(estimate.describe(line, done, of), flush=True),
                seconds=None if given.time_limit is None else 60 * given.time_limit,
            )
        write_table(given.out, {**ANCHORS}, LINEAR)


if __name__ == "__main__":
    main()
