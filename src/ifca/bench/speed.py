"""How fast are the engines? All of them on the same job in one run, beside the machine's own GEMM rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ifca.bench.rounds_timed import TimedRounds
from ifca.bench.work import exact_flops, gemm_rate, loop_flops, peak_memory, seconds_of
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Clients, Federation, mixture_of_regressions
from ifca.engines.gram.fast import applies
from ifca.engines.precision import Precision
from ifca.engines.sweep import sweep
from ifca.models import cifar_cnn, linear, mlp
from ifca.training import Job

MNIST = {"mnist-4800": (4800, 50), "mnist-2400": (2400, 100), "mnist-1200": (1200, 200)}
SYNTHETIC = {"synthetic-k2": (100, 100, 2, 600), "synthetic-k4": (400, 100, 4, 600)}  # m, n, k, runs
JOBS = (*MNIST, "cifar", *SYNTHETIC)
Row = dict[str, Any]
Elsewhere = Callable[[Callable[..., Job], tuple[Any, ...], Callable[[Job], float]], float]
"""Measures a job, given by what makes it, on an engine that this room does not know."""


def bench(
    name: str,
    *,
    scale: float = 1.0,
    device: torch.device,
    rounds: int = 1,
    engines: tuple[str, ...] = (),
    flower: Elsewhere | None = None,
) -> Iterator[Row]:
    """A row per engine: loop, vectorised, fast and with stable identities, and Flower where it is given."""
    if name not in JOBS:
        raise InvalidInput(f"unknown job {name} (known: {', '.join(JOBS)})")
    if not 0 < scale <= 100:
        raise InvalidInput(f"scale must be in (0, 100], got {scale}")
    peak = gemm_rate(device)
    loop: float | None = None
    work = partial(_flower, flower, name, scale) if flower else None
    times = (
        _synthetic(name, scale, device, work)
        if name in SYNTHETIC
        else _training(name, scale, device, rounds, work)
    )
    for engine, measure in times:
        if engines and engine not in engines:
            continue
        seconds, flops = measure()
        loop = seconds if engine == "loop" else loop
        yield {
            "job": name,
            "scale": scale,
            "engine": engine,
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "seconds_per_round": seconds,
            "ratio_to_loop": None if loop is None else loop / seconds,
            "gflops": flops / seconds / 1e9,
            "fraction_of_gemm_peak": flops / seconds / peak,
            "gemm_gflops": peak / 1e9,
            "peak_memory_mib": peak_memory(device),
        }


Timed = Iterator[tuple[str, Callable[[], tuple[float, float]]]]


def _training(
    name: str, scale: float, device: torch.device, rounds: int, flower: Callable[[int], float] | None
) -> Timed:
    job = make_job(name, scale, device)
    plain = loop_flops(job)
    yield "loop", lambda: (round_seconds(replace(job, engine="loop"), rounds), plain)
    yield "vectorised", lambda: (round_seconds(replace(job, fast_path=False), rounds), plain)
    if name == "cifar" and device.type == "cuda":
        kinds: list[Precision] = ["float32", "tf32", "bfloat16"]
        for kind in kinds:
            yield f"by-hand-{kind}", partial(_timed, job, kind, rounds, plain)
    if applies(job.task, job.recipe):
        stable = replace(job, recipe=replace(job.recipe, stable_after=1, recheck_every=10**6))
        for engine, one, models in (("fast", job, job.recipe.k), ("fast-stable", stable, 1)):
            flops = _fast_flops(job, models)
            yield engine, partial(_timed, one, "float32", rounds, flops)
            if device.type == "cuda":
                yield f"{engine}-tf32", partial(_timed, one, "tf32", rounds, flops)
    if flower is not None:
        yield "flower", lambda: (flower(rounds), plain)


def make_job(name: str, scale: float, device: torch.device) -> Job:
    """The job of a name; of synthetic ones a single run of the trial."""
    if name in SYNTHETIC:
        m, n, k, _ = SYNTHETIC[name]
        federation, _ = mixture_of_regressions(clients=m, samples=n, dimension=1000, clusters=k)
        recipe = Recipe(
            algorithm="ifca-plain", k=k, rounds=10**6, option="gradient", initial="bernoulli", step_size=0.1
        )
        return Job(federation, recipe, lambda: linear(1000), device=device)
    return cifar_job(scale, device) if name == "cifar" else mnist_job(*MNIST[name], scale, device)


def _flower(flower: Elsewhere, name: str, scale: float, rounds: int) -> float:
    return flower(make_job, (name, scale, torch.device("cpu")), partial(round_seconds, rounds=rounds))


def _timed(job: Job, precision: Precision, rounds: int, flops: float) -> tuple[float, float]:
    return round_seconds(replace(job, precision=precision), rounds), flops


def round_seconds(job: Job, rounds: int) -> float:
    """Engine and server of a round, after warm-up rounds; the best of a few."""
    timed, stable = TimedRounds(job), job.recipe.stable_after is not None
    warm = 2 if job.device.type == "cuda" or stable else 0  # beside the first one
    for _ in range(warm + (5 if job.device.type == "cuda" else rounds)):
        if stable:
            timed.keep_identities()
        timed.round()
    return min(timed.seconds[warm:])


def mnist_job(m: int, n: int, scale: float, device: torch.device) -> Job:
    """Images of MNIST's shape and share of ink; what is on them does not matter for the time."""
    m = max(4, round(m * scale))
    rng = np.random.default_rng(0)
    x = np.empty((m * n, 784), np.uint8)
    for i in range(0, len(x), 2**16):  # a piece at a time: five million images must not need more
        piece = rng.integers(0, 256, x[i : i + 2**16].shape, dtype=np.uint8)
        x[i : i + 2**16] = np.where(rng.random(piece.shape, dtype=np.float32) < 0.19, piece, 0)
    recipe = Recipe(algorithm="ifca-plain", k=4, rounds=10**6, local_steps=10, step_size=0.1)
    return Job(_federation(x, rng.integers(0, 10, m * n), m), recipe, lambda: mlp(784, 10), device=device)


def cifar_job(scale: float, device: torch.device) -> Job:
    """A round's 20 participants: 500 images each, 5 epochs of batch 50."""
    m, rng = max(2, round(20 * scale)), np.random.default_rng(0)
    x = rng.integers(0, 256, (m * 500, 3, 32, 32), dtype=np.uint8)
    recipe = Recipe(algorithm="ifca-plain", k=2, rounds=10**6, local_epochs=5, batch_size=50, step_size=0.01)
    return Job(_federation(x, rng.integers(0, 10, m * 500), m), recipe, cifar_cnn, device=device)


def _federation(x: np.ndarray, y: np.ndarray, m: int) -> Federation:
    offsets = np.arange(m + 1, dtype=np.int64) * (len(x) // m)
    ids = tuple(str(i) for i in range(m))
    return Federation(Clients(torch.from_numpy(x), torch.from_numpy(y), offsets, ids), None, 10)


def _synthetic(name: str, scale: float, device: torch.device, flower: Callable[[int], float] | None) -> Timed:
    """All runs of a trial: the loop's time is one run's, times the number of runs."""
    m, n, k, runs = SYNTHETIC[name]
    runs = max(1, round(runs * scale))
    job = make_job(name, scale, device)
    federation = job.federation
    plain = 2.0 * m * n * 1000 * (k + 2)
    yield "loop", lambda: (runs * round_seconds(replace(job, engine="loop"), 2), runs * plain)
    yield "vectorised", lambda: (runs * round_seconds(replace(job, fast_path=False), 2), runs * plain)

    def columns() -> tuple[float, float]:
        x = federation.train.x.view(m, n, 1000).to(device)
        y = federation.train.y.view(1, m, n).expand(runs, m, n).to(device)
        theta = torch.bernoulli(torch.full((runs, k, 1000), 0.5)).to(device)
        step = torch.full((runs,), 0.1, device=device)

        def best_of_three(rounds: int) -> float:
            return min(seconds_of(lambda: sweep(x, y, theta, step, rounds), device) for _ in range(3))

        rounds, one = 5, best_of_three(1)
        while (many := best_of_three(rounds)) < 2 * one:  # a difference that is mostly noise
            rounds *= 2
        seconds = (many - one) / (rounds - 1)
        return seconds, 2.0 * m * n * 1000 * runs * k * 2  # early rounds: everybody is asked

    yield "fast", columns
    if flower is not None:
        yield "flower", lambda: (runs * flower(2), runs * plain)


def _fast_flops(job: Job, judged: int) -> float:
    """Products of the fast path."""
    return exact_flops(job, job.federation.train.sizes.astype(np.float64), judged)[0]
