"""What a round must do at least, and what a machine can do: products and bytes, of both sorts."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

from ifca.engines.covered import not_exact
from ifca.training import Job
from ifca.training.start import problem_of


class Rates(NamedTuple):
    """What the machine does in a second, measured."""

    flops: float  # of a large float32 product
    bytes: float  # read and written by a copy of much memory


class Work(NamedTuple):
    """What a round must do at least."""

    flops: float
    bytes: float


@lru_cache
def machine_rates(device: torch.device) -> Rates:
    """Best of several; measured once in a process."""
    size = 2**28 if device.type == "cuda" else 2**25  # floats: more than any cache holds
    a, b = torch.zeros(size, device=device), torch.empty(size, device=device)
    copied = 8 * size / min(seconds_of(lambda: b.copy_(a), device) for _ in range(5))
    return Rates(gemm_rate(device), copied)


def gemm_rate(device: torch.device) -> float:
    """Flops per second of a large float32 product, best of several."""
    size = 8192 if device.type == "cuda" else 2048
    a, b, c = (torch.randn(size, size, device=device) for _ in range(3))
    return 2 * size**3 / min(seconds_of(lambda: torch.mm(a, b, out=c), device) for _ in range(5))


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """What it takes until it is done."""
    synchronise(device)
    before = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - before


def synchronise(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def round_work(job: Job, judged: int) -> Work:
    """Of a round in which all participants judge so many models: by the exact path where it covers the job.

    Bytes: data twice, for the losses and for the sum; Gram matrices and the clients' own models once, read
    and written; what fits into a cache is not counted.
    """
    clients, recipe = job.federation.train, job.recipe
    sizes = clients.sizes.astype(np.float64) * recipe.participation
    sample = clients.x[:1].numel() * clients.x.element_size()
    models = 4.0 * job.models * sum(value.numel() for value in job.template.parameters())
    moved = 2 * sizes.sum() * sample + 2 * models
    if job.engine == "loop" or not_exact(job.task, recipe):
        return Work(loop_flops(job) * recipe.participation, moved)
    flops, grams = exact_flops(job, sizes, judged)
    return Work(flops, moved + 4 * grams)


def exact_flops(job: Job, sizes: NDArray[np.float64], judged: int) -> tuple[float, float]:
    """Products of the exact path: judging, cluster update, Gram steps, later layers; entries of all G.

    sizes: samples of the clients that take part.
    """
    first = job.task.first
    assert first is not None
    shapes = {name: value.shape for name, value in job.template.named_parameters()}
    h, d = shapes[first.weight]
    later = sum(math.prod(shape) for n, shape in shapes.items() if n != first.weight and len(shape) > 1)
    steps, batch = _steps(job, sizes)
    moves = (np.minimum(sizes, 2 * d) * batch * np.maximum(0, steps - 1)).sum() * h
    rows, trained = sizes.sum(), (batch * steps).sum()
    judging = rows * (d * h + later) * judged
    return 2 * (judging + rows * d * h + moves + 3 * trained * later), (sizes**2).sum()


def _steps(job: Job, sizes: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradient steps that each client takes in a round, and the samples of one."""
    recipe = job.recipe
    batch = sizes if recipe.batch_size is None else np.minimum(sizes, recipe.batch_size)
    if recipe.option == "gradient":
        return np.ones_like(sizes), batch
    if recipe.local_epochs is not None:
        return recipe.local_epochs * sizes / np.maximum(1, batch), batch
    return np.full_like(sizes, recipe.local_steps), batch


def loop_flops(job: Job) -> float:
    """Of a plain round: counted on one client, times the samples of all."""
    clients = job.federation.train
    federation = replace(job.federation, train=clients.subset([0]))
    recipe = replace(job.recipe, k=1, participation=1.0)
    alone = replace(job, federation=federation, recipe=recipe, engine="loop", device=torch.device("cpu"))
    engine = alone.make_engine()
    state = alone.method.start(problem_of(alone, engine), 0)
    one, none = torch.zeros(1, dtype=torch.long), torch.full((1,), -1)
    with FlopCounterMode(display=False) as training:
        engine.train(state.theta, one, none if job.method.chooses else one, 0)
    with FlopCounterMode(display=False) as judging:
        engine.score(state.theta, federation.train)
    more = (job.recipe.k - 1) * judging.get_total_flops() if job.method.chooses else 0
    share = float(clients.offsets[-1]) / float(clients.sizes[0])
    return share * float(training.get_total_flops() + more)


def peak_memory(device: torch.device) -> float:
    """MiB so far: of the GPU's memory, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    if sys.platform == "win32":
        return math.nan  # Windows has no such count
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / 2**20 if sys.platform == "darwin" else used / 2**10
