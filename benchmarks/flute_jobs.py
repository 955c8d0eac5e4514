"""Two jobs that FLUTE published its times of, whole: from reading the data to the accuracy at the end.

python -m benchmarks.flute_jobs --out results/bench/flute.json [--job lr-mnist,femnist-cnn] [--device cuda]

FedAvg with one local epoch, ten clients a round (FLUTE: Dimitriadis et al. 2022; times of its repository).
lr-mnist: logistic regression, MNIST at 1000 clients, two classes each, lognormal sizes, batches of 10, step
0.03, 100 rounds; FLUTE took 95 s, on 2 GPUs 91 s. femnist-cnn: batches of 20, step 0.1, 1500 rounds; FLUTE
took 502 s. What differs: FLUTE's FEMNIST has 3400 writers, 359 of LEAF's are here (a round has ten either
way); its network has 1.2 million parameters, ours is LEAF's with 6.6 million. The data are looked for in
IFCA_DATA. A process of its own for each job; torch and numpy are enough.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ifca.core.recipe import Recipe
from ifca.data import Deal, femnist, partition, read_mnist
from ifca.data.files import write_atomically
from ifca.models import femnist_cnn, mlp
from ifca.runs.units.execute import PACKAGE, commit_of, device_name, versions
from ifca.training import Job, fit

TOLD = {"lr-mnist": 95.0, "femnist-cnn": 502.0}
A_ROUND = 10
Row = dict[str, Any]


def lr_mnist(device: torch.device) -> Job:
    """Logistic regression at a thousand clients."""
    train, test = read_mnist()
    deal = Deal(clients=1000, samples=40, test_samples=10, size_sigma=0.9, classes_per_client=2)
    data = partition(train.x, train.y, test.x, test.y, deal=deal)
    recipe = Recipe("global", rounds=100, local_epochs=1, batch_size=10, step_size=0.03, evaluate_every=0)
    return Job(data, _some(recipe, len(data.train)), lambda: mlp(784, 10, ()), device=device)


def femnist_job(device: torch.device) -> Job:
    """LEAF's network at LEAF's writers."""
    data = femnist()
    recipe = Recipe("global", rounds=1500, local_epochs=1, batch_size=20, step_size=0.1, evaluate_every=0)
    job = Job(data, _some(recipe, len(data.train)), femnist_cnn, device=device)
    return replace(job, precision="tf32") if device.type == "cuda" else job


def _some(recipe: Recipe, m: int) -> Recipe:
    return replace(recipe, participation=A_ROUND / m, weighted=True)


JOBS = {"lr-mnist": lr_mnist, "femnist-cnn": femnist_job}


def measured(name: str, device: torch.device) -> Row:
    """A row: seconds of the whole, of the training alone, and how good the model is."""
    began = time.perf_counter()
    job = JOBS[name](device)
    made = time.perf_counter()
    fitted = fit(job)
    done = time.perf_counter()
    assert fitted.test is not None
    return {
        "job": name,
        "clients": len(job.federation.train),
        "samples": int(job.federation.train.offsets[-1]),
        "rounds": job.recipe.rounds,
        "seconds": done - began,
        "training_seconds": done - made,
        "told_of_flute": TOLD[name],
        "accuracy": fitted.test.accuracy(fitted.test.paper_rule),
        "precision": job.precision,
        "device": device_name(device),
        "commit": commit_of(PACKAGE),
        "versions": versions(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", default=",".join(JOBS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--one", action="store_true", help="measure one job in this process and print it")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.job, torch.device(given.device))))
        return
    rows = json.loads(given.out.read_text()) if given.out is not None and given.out.exists() else []
    for name in given.job.split(","):
        command = [sys.executable, "-m", "benchmarks.flute_jobs", "--one", "--job", name]
        began = time.perf_counter()
        done = subprocess.run(
            [*command, "--device", given.device], check=True, stdout=subprocess.PIPE, text=True
        )
        row = json.loads(done.stdout.splitlines()[-1])
        row["command_seconds"] = time.perf_counter() - began
        print(json.dumps(row), flush=True)
        rows = [*(one for one in rows if one["job"] != name), row]
    if given.out is not None:
        write_atomically(given.out, (json.dumps(rows, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
