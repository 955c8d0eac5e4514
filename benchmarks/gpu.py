"""Checks and times on a CUDA machine with torch and numpy. python benchmarks/gpu.py OUT.json"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import torch

from ifca.engines import fit, fused
from ifca.engines.fit import start
from ifca.experiments.bench import JOBS, _mnist, bench

CUDA = torch.device("cuda")


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double().cpu() - b.double().cpu()).norm() / b.double().cpu().norm())


def agreement(n: int) -> None:
    """Fused, plain fast path on CUDA, and the loop on the CPU in double precision, three rounds."""
    job = _mnist(12, n, 1.0, CUDA)
    job = replace(job, recipe=replace(job.recipe, rounds=3, evaluate_every=0, seed=1))
    oracle = fit(replace(job, engine="loop", device=torch.device("cpu"), dtype=torch.float64))
    engine = job.placed().make_engine()
    theta = start(job).theta
    print(n, "fused applies:", engine._fuses(theta, CUDA))  # type: ignore[attr-defined]
    for name, one in (("fused", job), ("plain", None)):
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


def main() -> None:
    for n in (50, 100, 200, 33, 129):
        agreement(n)
    rows = []
    for name in JOBS:
        if name == "cifar" and "--no-cifar" in sys.argv:
            continue
        engines = ("fast", "fast-stable") if name.startswith("mnist") else ("vectorised", "fast")
        for row in bench(name, device=CUDA, engines=engines):
            rows.append(row)
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
