"""Trainings that do not wait for each other, in several processes: those of a study, restarts of a run.

Every one has a folder of its own, and what is finished there is not done again: the workers train ahead, and
the command then goes through the folders as if it had trained them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ifca.core.callbacks import Silent
from ifca.core.errors import Diverged
from ifca.runs.make import make_federation, make_job
from ifca.runs.run_code import kept_code, run_id
from ifca.runs.run_folder import open_directory, train_in
from ifca.runs.summary_file import SUMMARY
from ifca.runs.units.pool import gpus, pooled

OnDone = Callable[[Path, int, int], object]
"""Told the folder of a training that is done, how many are, and of how many."""


def silent(_folder: Path, _done: int, _of: int) -> None:
    """Nobody is told."""


def train_folders(
    folders: Sequence[Path],
    workers: int,
    device: str,
    on_done: OnDone = silent,
    devices: list[str] | None = None,
) -> None:
    """Train the runs of some folders as far as they are not finished. devices: in place of the machine's."""
    todo = [folder for folder in folders if not (folder / SUMMARY).exists()]
    if workers < 2 or len(todo) < 2:
        return
    found = pooled(todo, _whole, workers, gpus(device) if devices is None else devices)
    for done, folder in enumerate(found, len(folders) - len(todo) + 1):
        on_done(folder, done, len(folders))


def _whole(folder: Path) -> Path:
    """A run, in a worker. What goes wrong is found, and told, by whoever goes through the folders."""
    from ifca.runs.run import resume

    with suppress(Diverged):
        resume(folder)
    return folder


def train_restarts(
    out: Path, restarts: int, workers: int, device: str, devices: list[str] | None = None
) -> None:
    """Train the restarts of a run as far as they are not finished."""
    if workers < 2 or restarts < 2:
        return
    todo = [(out, restart) for restart in range(restarts)]
    list(pooled(todo, _restart, workers, gpus(device) if devices is None else devices))


def _restart(which: tuple[Path, int]) -> None:
    out, restart = which
    config = open_directory(out)
    code = kept_code(out, config, trust=False)
    job = make_job(config, make_federation(config, code), code)
    folder = out / "restarts" / str(restart)
    with suppress(Diverged):
        train_in(folder, job, config, restart, run_id(out), f"restart {restart}", Silent())
