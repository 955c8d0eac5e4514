"""What does bfloat16 cost on Rotated CIFAR? The recipe of Table 1 in another precision, on a CUDA device.

python benchmarks/precision.py OUT.jsonl [--precision tf32] [--algorithms ifca,global] [--seeds 0:2]

A line of OUT.jsonl for every training, beside those of results/rotated-cifar/runs.jsonl in bfloat16. A
training whose line is there is not repeated.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from ifca.data.jsonl import append_jsonl, read_jsonl
from ifca.paper import jobs
from ifca.paper.measure import measured
from ifca.paper.table1_cifar import EVERY, ROUNDS
from ifca.runs.units.choice import chosen_seeds
from ifca.runs.units.execute import commit_of, device_name, versions
from ifca.training import fit

CUDA = torch.device("cuda")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--precision", default="tf32", choices=("float32", "tf32", "bfloat16"))
    parser.add_argument("--algorithms", default="ifca,global")
    parser.add_argument("--seeds", default="0:2")
    given = parser.parse_args()
    names = ("algorithm", "precision", "seed")
    done = {tuple(line[name] for name in names) for line in read_jsonl(given.out)}
    for seed in chosen_seeds(given.seeds) or ():
        for algorithm in given.algorithms.split(","):
            unit = dict(zip(names, (algorithm, given.precision, seed), strict=True))
            if tuple(unit.values()) in done:
                continue
            job, began = jobs.placed(jobs.cifar(seed, ROUNDS), CUDA, given.precision), time.perf_counter()
            recipe = replace(job.recipe, algorithm=algorithm, evaluate_every=EVERY)
            found = measured(fit(replace(job, recipe=recipe)))
            line = {**unit, **found, "seconds": round(time.perf_counter() - began, 2)}
            line |= {
                "device": device_name(CUDA),
                "versions": versions(),
                "commit": commit_of(Path("src/ifca")),
            }
            append_jsonl(given.out, line)
            print(unit, line["test_accuracy"], line["seconds"], flush=True)


if __name__ == "__main__":
    main()
