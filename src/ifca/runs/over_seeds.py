"""A comparison over seeds: a folder with a run folder for each seed, and what they say together."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from ifca.core.callbacks import Callback, Several
from ifca.core.errors import Diverged, InvalidInput, Unreadable
from ifca.data import Federation
from ifca.data.files import working_in, write_atomically
from ifca.data.formats.json_file import read_json
from ifca.runs.by_workers import train_folders
from ifca.runs.comparison import comparison
from ifca.runs.config import Config
from ifca.runs.make import make_federation
from ifca.runs.own_code import Code
from ifca.runs.run_code import kept_code
from ifca.runs.run_folder import CONFIG, SEEDS, begin_again, check_unused, new_directory, open_directory
from ifca.runs.summary_file import SUMMARY, read_seeds_summary, write_summary
from ifca.runs.titled import Titled
from ifca.runs.units.pool import workers_of

Summary = dict[str, Any]


class Seeds(TypedDict):
    """What seeds.json holds."""

    seeds: list[Annotated[int, Field(ge=0)]]


Train = Callable[[Config, Federation, Path, Callback, Code], Summary]


def begin_seeds(config: Config, seeds: int, out: Path, code: Code) -> None:
    """Make a new folder with a run folder for each seed: that of the config, and those that follow it."""
    check_unused(out, SEEDS)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / SEEDS, json.dumps({"seeds": [config.seed + i for i in range(seeds)]}).encode())
    for folder, seed in seed_folders(out):
        new_directory(replace(config, seed=seed), folder, code)


def is_over_seeds(out: Path) -> bool:
    """Whether a folder holds a comparison over seeds."""
    return (out / SEEDS).is_file()


def seed_folders(out: Path) -> list[tuple[Path, int]]:
    """The run folders of a comparison, each with its seed."""
    seeds = read_json(out / SEEDS, Seeds, "it is not what 'ifca compare' wrote")["seeds"]
    if not seeds or len(set(seeds)) < len(seeds):
        raise Unreadable(f"{out / SEEDS}: seeds must be numbers that differ; it was altered")
    return [(out / f"seed-{seed}", seed) for seed in seeds]


def seeds_summary(out: Path) -> Summary | None:
    """The summary of a comparison over seeds; None: it is not complete."""
    return read_seeds_summary(out) if (out / SUMMARY).exists() else None


def go_on_seeds(
    out: Path, callback: object, train: Train, *, trust: bool = False, workers: int | None = 1
) -> Summary:
    """Train the seeds that are not done, then compare; a finished comparison is left as it is.

    train: trains all methods of a config in a run folder, as far as they are not done. workers: processes
    that train, each on a GPU of its own in turn; None: one per GPU.
    """
    if (done := seeds_summary(out)) is not None:
        return done
    folders = seed_folders(out)
    if not (folders[0][0] / CONFIG).is_file():
        raise InvalidInput(f"{out}: was ended before it began; give 'ifca compare' another --out")
    first = open_directory(folders[0][0])
    code = kept_code(folders[0][0], first, trust)  # the same for all seeds
    runs: dict[int, tuple[Path, Summary]] = {}
    data = set()
    with working_in(out):
        train_folders([folder for folder, _ in folders], workers_of(workers, first.device), first.device)
        for i, (folder, seed) in enumerate(folders, 1):
            if not (folder / CONFIG).is_file():
                new_directory(replace(first, seed=seed), folder, code)
            config = open_directory(folder)
            begin_again(folder, config, code)
            federation = make_federation(config, code)
            data.add(federation.fingerprint)
            told = Titled(Several([callback]), f"seed {seed} ({i} of {len(folders)})", alone=False)
            try:
                runs[seed] = folder, train(config, federation, folder, told, code)
            except Diverged as failure:
                raise Diverged(f"seed {seed}: {failure}") from failure
        summary = {
            "comparison": comparison(runs, same_data=len(data) == 1),
            "folders": [folder.name for folder, _ in folders],
            **{name: runs[folders[0][1]][1][name] for name in ("config", "versions")},
        }
        write_summary(out, summary)
    return summary
