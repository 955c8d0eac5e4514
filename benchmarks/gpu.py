"""Checks and times on a CUDA machine with torch and numpy. python benchmarks/gpu.py OUT.json"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import torch

from ifca.bench.speed import JOBS, bench, cifar_job, mnist_job
from ifca.data import Clients
from ifca.engines.cuda import fused
from ifca.runs.units.execute import PACKAGE, commit_of, versions
from ifca.training import fit

CUDA = torch.device("cuda")


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double().cpu() - b.double().cpu()).norm() / b.double().cpu().norm())


def agreement(n: int) -> None:
    """Fused, plain fast path on CUDA, and the loop on the CPU in double precision, three rounds."""
    job = mnist_job(12, n, 1.0, CUDA)
    job = replace(job, recipe=replace(job.recipe, rounds=3, evaluate_every=0, seed=1))
    oracle = fit(replace(job, engine="loop", device=torch.device("cpu"), precision="float64"))
    for name, one in (("fused", job), ("fused, tf32", replace(job, precision="tf32")), ("plain", None)):
        if one is None:
            kept, fused.kernels = fused.kernels, None
            result = fit(job)
            fused.kernels = kept
        else:
            result = fit(one)
        errors = {
            key: f"{relative(value, oracle.state.theta[key]):.1e}"
            for key, value in result.state.theta.items()
        }
        print(n, name, errors, "labels", torch.equal(result.labels, oracle.labels), flush=True)


def convolutions() -> None:
    """Captured mini-batch steps on CUDA against the loop on the CPU in double precision."""
    job = cifar_job(0.1, CUDA)
    small = replace(job.federation, train=_first(job.federation.train, 60))
    recipe = replace(job.recipe, rounds=2, local_epochs=2, batch_size=25, evaluate_every=0)
    job = replace(job, federation=small, recipe=recipe)
    oracle = fit(replace(job, engine="loop", device=torch.device("cpu"), precision="float64"))
    for precision in ("float32", "tf32", "bfloat16"):
        result = fit(replace(job, precision=precision))  # type: ignore[arg-type]
        errors = {
            key: f"{relative(value, oracle.state.theta[key]):.1e}"
            for key, value in result.state.theta.items()
        }
        print("cnn", precision, errors, "labels", torch.equal(result.labels, oracle.labels), flush=True)


def _first(clients: Clients, n: int) -> Clients:
    keep = torch.cat([torch.arange(int(a), int(a) + n) for a in clients.offsets[:-1]])
    return replace(clients, x=clients.x[keep], y=clients.y[keep], offsets=np.arange(len(clients) + 1) * n)


def main() -> None:
    convolutions()
    for n in (50, 100, 200, 33, 129):
        agreement(n)
    rows = []
    for name in JOBS:
        if name == "cifar" and "--no-cifar" in sys.argv:
            continue
        mnist = ("fast", "fast-tf32", "fast-stable", "fast-stable-tf32")
        engines = mnist if name.startswith("mnist") else ()
        engines = ("by-hand-float32", "by-hand-tf32", "by-hand-bfloat16") if name == "cifar" else engines
        engines = ("vectorised", "fast") if name.startswith("synthetic") else engines
        for row in bench(name, device=CUDA, engines=engines):
            rows.append({**row, "commit": commit_of(PACKAGE), "versions": versions()})
            print(
                row["job"],
                row["engine"],
                f"{1e3 * row['seconds_per_round']:.3f} ms",
                f"{row['gflops']:.0f} GFLOP/s",
                f"{row['peak_memory_mib']:.0f} MiB",
                flush=True,
            )
    with open(sys.argv[1], "w") as out:  # noqa: PTH123
        json.dump(rows, out, indent=2)


if __name__ == "__main__":
    main()
