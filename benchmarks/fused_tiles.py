"""Which tile of a step's largest kernel is fastest? python benchmarks/fused_tiles.py N HIDDEN STAGES WARPS"""

from __future__ import annotations

import sys
from dataclasses import replace

import torch

from ifca.bench.speed import mnist_job, round_seconds
from ifca.engines.cuda import fused_steps
from ifca.training import fit

n, hidden, stages, warps = (int(word) for word in sys.argv[1:5])
fused_steps.FORWARD.update(hidden=hidden, stages=stages, warps=warps)
cuda = torch.device("cuda")
small = mnist_job(8, n, 1.0, cuda)
small = replace(small, recipe=replace(small.recipe, rounds=2, evaluate_every=0))
fast = fit(small).state.theta
exact = fit(replace(small, engine="loop", device=torch.device("cpu"), precision="float64")).state.theta
error = max(float((fast[k].cpu() - exact[k]).norm() / exact[k].norm()) for k in exact)
seconds = round_seconds(mnist_job(240_000 // n, n, 1.0, cuda), 1)
tile = f"hidden {hidden} stages {stages} warps {warps}"
print(f"n {n} {tile}: {1e3 * seconds:.3f} ms, error {error:.1e}", flush=True)
