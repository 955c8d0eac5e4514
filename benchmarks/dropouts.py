"""100,000 simulated clients of which three in ten drop out in every round: does it train, does memory stay?

python -m benchmarks.dropouts --out results/chaos/dropouts.json [--clients 100000] [--rounds 40]

The clients of benchmarks/million.py. Every row is a process of its own, so that its memory is its own: the
adjusted Rand index of the identities with the four populations, the training loss, the replies that came, and
the process's memory after a quarter of the rounds and after the last.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.million import CLASSES, FEATURES, POPULATIONS, federation

from ifca.data.files import write_atomically

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--algorithm", default="ifca-plain,ifca")
    parser.add_argument("--lost", default="0,0.3")
    parser.add_argument("--one", action="store_true", help="measure one row in this process and print it")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.clients, given.algorithm, float(given.lost), given.rounds)))
        return
    rows = []
    for algorithm in given.algorithm.split(","):
        for lost in given.lost.split(","):
            command = [sys.executable, "-m", "benchmarks.dropouts", "--one", "--clients", str(given.clients)]
            command += ["--algorithm", algorithm, "--lost", lost, "--rounds", str(given.rounds)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(json.dumps(rows[-1]), flush=True)
    if given.out is not None:
        write_atomically(given.out, (json.dumps({"rows": rows}, indent=1) + "\n").encode())


def measured(m: int, algorithm: str, lost: float, rounds: int) -> Row:
    """One training."""
    from ifca.core.metrics import adjusted_rand_index
    from ifca.core.recipe import Recipe
    from ifca.models import mlp
    from ifca.runs.units.execute import PACKAGE, commit_of, versions
    from ifca.training import Job, fit

    recipe = Recipe(
        algorithm, k=POPULATIONS, rounds=rounds, local_steps=5, lost_replies=lost, evaluate_every=0
    )
    job = Job(federation(m), recipe, lambda: mlp(FEATURES, CLASSES, (64,)))
    heard, sizes, times = list[int](), list[float](), [time.monotonic()]

    def look(_state: object, record: Row) -> None:
        heard.append(record["participants"])
        sizes.append(resident())
        times.append(time.monotonic())

    fitted, true = fit(job, on_round=look), job.federation.train.true_cluster
    assert true is not None
    early, late = median(sizes[rounds // 4 : rounds // 2]), median(sizes[-max(3, rounds // 10) :])
    return {
        "clients": m,
        "algorithm": algorithm,
        "lost": lost,
        "rounds": len(heard),
        "replies_share": sum(heard) / (m * rounds),
        "rand_index": adjusted_rand_index(fitted.labels.numpy(), true),
        "train_loss": fitted.train_loss,
        "seconds_a_round": median(b - a for a, b in pairwise(times[1:])),
        "memory_gib": [round(early, 3), round(late, 3)],
        "memory_percent": round(100 * (late / early - 1), 2),
        "load": os.getloadavg()[0],
        "commit": commit_of(PACKAGE),
        "versions": versions(),
    }


def resident() -> float:
    """GiB that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


if __name__ == "__main__":
    main()
