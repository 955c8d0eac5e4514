"""How fast are users' shapes? The loop, plain IFCA and the default take turns, round by round, in one run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from ifca.bench.rounds_timed import TimedRounds
from ifca.bench.shapes import shape_job, shape_of
from ifca.bench.work import Rates, machine_rates, peak_memory, round_work
from ifca.core.errors import InvalidInput
from ifca.engines.covered import not_exact, not_fused
from ifca.methods.ifca import IFCA
from ifca.runs.units.execute import PACKAGE, commit_of, device_name, versions
from ifca.training import Job

Row = dict[str, Any]
LOOP, DEFAULT = "loop", IFCA.name


def bench_shape(
    name: str,
    *,
    scale: float = 1.0,
    device: torch.device,
    rounds: int = 5,
    contestants: tuple[str, ...] = (),
) -> list[Row]:
    """A row for each contestant: the loop, the shape's own method, and ifca where that is another.

    rounds: of each after its first. Ratios are medians over rounds that were timed one after the other.
    """
    if not 0 < scale <= 100:
        raise InvalidInput(f"scale must be in (0, 100], got {scale}")
    if rounds < 1:
        raise InvalidInput(f"rounds must be at least 1, got {rounds}")
    shape, rates = shape_of(name), machine_rates(device)
    jobs = dict(_contestants(shape_job(name, scale, device)))
    timed = {who: TimedRounds(job) for who, job in jobs.items() if not contestants or who in contestants}
    if not timed:
        raise InvalidInput(f"unknown contestant {', '.join(contestants)} (known: {', '.join(jobs)})")
    for _ in range(rounds):
        for one in timed.values():
            one.round()
    told = {"shape": name, "about": shape.about, "scale": scale, **_where(device)}
    return [{**told, **_row(who, timed, rates)} for who in timed]


def _contestants(job: Job) -> Iterator[tuple[str, Job]]:
    """The shape's own method in the loop and as it is; then the default on the same clients."""
    yield LOOP, replace(job, engine="loop")
    yield job.recipe.algorithm, job
    if job.convolves:
        with suppress(InvalidInput):  # not every CPU can
            yield f"{job.recipe.algorithm}, bfloat16", replace(job, precision="bfloat16")
    if job.method.clustered:
        yield DEFAULT, replace(job, recipe=replace(job.recipe, algorithm=DEFAULT))


def _row(who: str, timed: dict[str, TimedRounds], rates: Rates) -> Row:
    one, job = timed[who], timed[who].job
    work, spent = round_work(job, job.recipe.k if job.method.chooses else 1), one.median
    plain = next((name for name in timed if name not in (LOOP, DEFAULT)), LOOP)
    clients = job.federation.train
    return {
        "contestant": who,
        "clients": len(clients),
        "samples": int(clients.offsets[-1]),
        "largest": int(clients.sizes.max()),
        "path": path_of(job),
        "first_round_seconds": one.first,
        "seconds_per_round": spent,
        "best_seconds": min(one.seconds),
        "seconds": one.seconds,
        "ratio_to_loop": _ratio(timed, LOOP, who),
        "times_plain": _ratio(timed, who, plain) if who == DEFAULT else None,
        "product_share": work.flops / spent / rates.flops,
        "memory_share": work.bytes / spent / rates.bytes,
        "gemm_gflops": rates.flops / 1e9,
        "copied_gb_per_second": rates.bytes / 1e9,
        "peak_memory_mib": peak_memory(job.device),
        "not_covered": not_covered_of(job),
    }


def _ratio(timed: dict[str, TimedRounds], above: str, below: str) -> float | None:
    """The median of how many times as long one took as the other, round by round."""
    if above not in timed or below not in timed:
        return None
    return median(a / b for a, b in zip(timed[above].seconds, timed[below].seconds, strict=True))


def path_of(job: Job) -> str:
    """How a job's turns are computed."""
    if job.engine == "loop":
        return "loop"
    exact, fused = not_covered_of(job).values()
    if exact or not job.fast_path:
        return "loop" if job.device.type == "cpu" and job.convolves else "vmap"
    return "exact" if fused else "kernels"


def not_covered_of(job: Job) -> dict[str, list[str]]:
    """Why the exact path does not train a job, and why kernels do not; nothing: they do."""
    parts = job.task, job.recipe
    return {
        "exact": not_exact(*parts),
        "kernels": not_fused(*parts, job.federation.train, job.device),
    }


def _where(device: torch.device) -> Row:
    """What the numbers depend on besides."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load": load,
        "commit": commit_of(PACKAGE),
        "versions": versions(),
    }
