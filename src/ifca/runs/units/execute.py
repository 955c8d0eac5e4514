"""Units to lines: what is not done yet, one after the other or in several processes on the GPUs there are."""

from __future__ import annotations

import gc
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch

import ifca
from ifca.core.errors import Diverged
from ifca.data.files import working_in
from ifca.runs.units.lines import append, key, prepared, read_lines
from ifca.runs.units.pool import Pool, gpus, workers_of
from ifca.runs.units.unit import Line, Unit
from ifca.training.devices import choose_device

PACKAGE = Path(ifca.__file__).parent
OnLine = Callable[[Line, int, int], None]
"""Told each line, how many units are done, and of how many."""
Run = Callable[[Unit, torch.device], Line]
"""What a unit measures; a function of a module, so that another process can import it."""


def execute(
    units: list[Unit],
    folder: Path,
    run: Run,
    *,
    device: str = "auto",
    workers: int | None = 1,
    on_line: OnLine | None = None,
    seconds: float | None = None,
    pool: Pool | None = None,
) -> int:
    """Run what has no line yet; returns how many units that were. seconds: none is begun after so many.

    workers: processes, each pinned to one of the GPUs; None: as many as there are GPUs. pool: these instead.
    """
    choose_device(device)  # refuse before anything is begun
    working = pool_of(workers, device) if pool is None else nullcontext(pool)
    if not units:
        return 0
    prepared(folder)
    end, count = time.monotonic() + (math.inf if seconds is None else seconds), 0
    with working_in(folder), working as at_work:
        done = {key(line) for line in read_lines(folder, units[0].quick)}
        todo = [unit for unit in units if unit.key not in done]
        commit = commit_of(PACKAGE)
        for count, line in enumerate(_lines(todo, run, device, at_work, end), 1):
            line["commit"] = commit
            append(folder, line)
            if on_line is not None:
                on_line(line, len(units) - len(todo) + count, len(units))
    return count


def pool_of(workers: int | None, device: str) -> Pool:
    """So many processes, for several calls of execute; None: as many as there are GPUs."""
    return Pool(workers_of(workers, device), gpus(device))


def _lines(todo: list[Unit], run: Run, device: str, pool: Pool, end: float) -> Iterator[Line]:
    """end: the moment after which no unit is begun."""
    if pool.workers > 1 and len(todo) > 1:
        yield from pool.each(todo, partial(run_unit, run=run, name=device), end)
        return
    for unit in todo:
        if time.monotonic() < end:
            yield run_unit(unit, run, device)


def run_unit(unit: Unit, run: Run, name: str) -> Line:
    """One unit as a line; a training that diverges is a result too. name: of the device."""
    device, began = choose_device(name), time.perf_counter()
    try:
        found = run(unit, device)
    except Diverged as reason:
        found = {"diverged": str(reason)}
    line: Line = {"setting": unit.setting, "algorithm": unit.algorithm, "seed": unit.seed}
    if unit.quick:
        line["quick"] = True
    seconds = round(time.perf_counter() - began, 2)
    if device.type == "cuda":  # other processes may want the memory that this one has kept
        gc.collect()
        torch.cuda.empty_cache()
    return {**line, **found, "seconds": seconds, "device": device_name(device), "versions": versions()}


def device_name(device: torch.device) -> str:
    """The GPU's name, or the processor's kind."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    return {
        "ifca": ifca.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def commit_of(package: Path) -> str | None:
    """The commit of the checkout that runs, -dirty where its code is changed; None: it is no checkout.

    IFCA_COMMIT says it where there is only a copy.
    """
    if given := os.environ.get("IFCA_COMMIT"):
        return given
    top = _git(package, "rev-parse", "--show-toplevel")
    if top is None or Path(top, "src", "ifca") != package.resolve():
        return None  # installed, perhaps in a folder of another repository
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return f"{_git(package, 'rev-parse', '--short=12', 'HEAD')}{'-dirty' if changed else ''}"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        asked = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return asked.stdout.strip()
