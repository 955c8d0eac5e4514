"""A million clients on two cores: does memory suffice, and does the time of a round grow as their number?

python -m benchmarks.million --out results/bench/million.json [--clients 100000,1000000] [--rounds 3]
                             [--algorithm ifca-plain,ifca]

Clients of 20 samples of 64 floats and ten classes, four populations, a network of 64 hidden units, k = 4, 5
local steps. Every size is a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from ifca.data.files import write_atomically

SAMPLES, FEATURES, CLASSES, POPULATIONS, PIECE = 20, 64, 10, 4, 2**18
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--clients", default="100000,1000000")
    parser.add_argument("--algorithm", default="ifca-plain,ifca")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", action="store_true", help="measure one size in this process and print it")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(int(given.clients), given.algorithm, given.rounds)))
        return
    rows = []
    for algorithm in given.algorithm.split(","):
        for m in given.clients.split(","):
            command = [sys.executable, "-m", "benchmarks.million", "--one", "--clients", m]
            command += ["--algorithm", algorithm, "--rounds", str(given.rounds)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(json.dumps(rows[-1]), flush=True)
    content = {"rows": rows, "growth": growth(rows), "samples": SAMPLES, "features": FEATURES}
    if given.out is not None:
        write_atomically(given.out, (json.dumps(content, indent=1) + "\n").encode())
    print(json.dumps(content["growth"]))


def growth(rows: list[Row]) -> Row:
    """A client's time in a round with the most clients over that with the fewest, by algorithm; 1: linear."""
    found = {}
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        mine = sorted((r for r in rows if r["algorithm"] == algorithm), key=lambda row: int(row["clients"]))
        found[algorithm] = mine[-1]["microseconds_per_client"] / mine[0]["microseconds_per_client"]
    return found


def measured(m: int, algorithm: str, rounds: int) -> Row:
    """One size: seconds of the first and of the next rounds, GiB at the peak."""
    from ifca.bench.rounds_timed import TimedRounds
    from ifca.core.recipe import Recipe
    from ifca.models import mlp
    from ifca.runs.units.execute import PACKAGE, commit_of, versions
    from ifca.training import Job

    recipe = Recipe(algorithm, k=POPULATIONS, rounds=10**6, local_steps=5)
    timed = TimedRounds(Job(federation(m), recipe, lambda: mlp(FEATURES, CLASSES, (64,))))
    for _ in range(rounds):
        timed.round()
    return {
        "clients": m,
        "algorithm": algorithm,
        "first_round_seconds": timed.first,
        "seconds": timed.seconds,
        "microseconds_per_client": 1e6 * median(timed.seconds) / m,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "data_gib": timed.job.federation.train.nbytes / 2**30,
        "load": os.getloadavg()[0],
        "commit": commit_of(PACKAGE),
        "versions": versions(),
    }


def federation(m: int) -> Any:
    """Drawn a piece at a time, so that nothing is there twice."""
    import numpy as np
    import torch

    from ifca.data import Clients, Federation

    rng, rows = np.random.default_rng(0), m * SAMPLES
    rules = rng.standard_normal((POPULATIONS, FEATURES, CLASSES), dtype=np.float32)
    x, y = np.empty((rows, FEATURES), np.float32), np.empty(rows, np.int64)
    for at in range(0, rows, PIECE):
        some = x[at : at + PIECE]
        rng.standard_normal(some.shape, dtype=np.float32, out=some)
        whose = np.arange(at, at + len(some)) // SAMPLES % POPULATIONS
        y[at : at + PIECE] = np.stack([(some @ rule).argmax(1) for rule in rules])[
            whose, np.arange(len(some))
        ]
    offsets, ids = np.arange(m + 1, dtype=np.int64) * SAMPLES, tuple(map(str, range(m)))
    train = Clients(torch.from_numpy(x), torch.from_numpy(y), offsets, ids, np.arange(m) % POPULATIONS)
    return Federation(train, None, CLASSES)


if __name__ == "__main__":
    main()
