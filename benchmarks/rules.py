"""How long a round takes with each rule of aggregation, against the mean, in one run on one machine.

    python -m benchmarks.rules                          # 1,200 clients, the paper's network of 784-200-10
    python -m benchmarks.rules --clients 120 --rules clip,nnm+median

The round is that of training, by the engine that a run would take: identities among k models, local steps,
aggregation. Pixels and labels are random, because times do not depend on them. Rules take turns, and the best
time of each counts, so that other work on the machine spoils little.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import cache
from pathlib import Path

import numpy as np
import torch

from ifca.core.recipe import Recipe
from ifca.data import Federation
from ifca.data.files import write_atomically
from ifca.engines.base import TurnEngine
from ifca.methods.robust_rules import MIXED, ROBUST
from ifca.models import mlp
from ifca.runs.units.execute import PACKAGE, commit_of, versions
from ifca.training import Job
from ifca.training.start import start

RULES = ["weighted-mean", *ROBUST, *(MIXED + name for name in ROBUST)]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    words.add_argument("--clients", type=int, default=1200)
    words.add_argument("--samples", type=int, default=200)
    words.add_argument("--k", type=int, default=4)
    words.add_argument("--option", choices=["model", "gradient"], default="model")
    words.add_argument("--repeats", type=int, default=3)
    words.add_argument("--rules", default=",".join(RULES))
    words.add_argument("--out", type=Path, help="a JSON file for the numbers")
    given = words.parse_args()
    jobs = {rule: job_of(given, rule) for rule in ["mean", *given.rules.split(",")]}
    engines = {rule: job.engine_of(job.federation.train) for rule, job in jobs.items()}
    theta = start(jobs["mean"]).theta
    seconds = {rule: float("inf") for rule in jobs}
    for _ in range(given.repeats):
        for rule, engine in engines.items():
            seconds[rule] = min(seconds[rule], timed(engine, theta, given.clients))
    rows = [
        {"rule": rule, "seconds": value, "ratio": value / seconds["mean"]} for rule, value in seconds.items()
    ]
    print("| rule | seconds a round | times the mean |\n|---|---|---|")
    for row in rows:
        print(f"| {row['rule']} | {row['seconds']:.2f} | {row['ratio']:.2f} |")
    if given.out is not None:
        settings = {name: value for name, value in vars(given).items() if name not in ("rules", "out")}
        settings |= {"threads": torch.get_num_threads(), "load": os.getloadavg()[0]}
        content = {"settings": settings, "rows": rows, "commit": commit_of(PACKAGE), "versions": versions()}
        write_atomically(given.out, (json.dumps(content, indent=1) + "\n").encode())


def job_of(given: argparse.Namespace, rule: str) -> Job:
    """One round's job; all rules have the same data."""
    recipe = Recipe("ifca-plain", k=given.k, option=given.option, aggregation=rule)
    return Job(federation(given.clients, given.samples), recipe, lambda: mlp(784, 10, (200,)))


@cache
def federation(m: int, n: int) -> Federation:
    """Random images of 28 x 28 pixels, made once."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (m, n, 28, 28), dtype=np.uint8), rng.integers(0, 10, (m, n))
    return Federation.from_arrays(list(x), list(y), classes=10)


def timed(engine: TurnEngine, theta: dict[str, torch.Tensor], m: int) -> float:
    """Seconds of one round of all clients."""
    began, who = time.perf_counter(), torch.arange(m)
    engine.train(theta, who, torch.full_like(who, -1), 0)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
