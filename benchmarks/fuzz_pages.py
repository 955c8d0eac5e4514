"""What benchmarks/fuzz.py gives to those who look at runs: report, watch, and the tables of reproduce."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from benchmarks.fuzz_made import made, mutated_file, reseal
from benchmarks.fuzz_mutations import Random
from benchmarks.fuzz_outcomes import Attempt, Wrong, naming

from ifca.report.live_run import LiveRun
from ifca.report.page import article
from ifca.report.page.build import MISSING

NAMES = ("summary.json", "rounds.jsonl", "clients.csv", "config.toml", "run.json", "differences.json")
"""The files that report and watch read."""


def seen(folder: Path) -> Attempt:
    """Finished and unfinished runs as report and watch read them; half of them with checksums that fit."""
    return _looked_at(folder, shown=False)


def pages(folder: Path) -> Attempt:
    """The same, and the page that is made of them."""
    return _looked_at(folder, shown=True)


def _looked_at(folder: Path, *, shown: bool) -> Attempt:
    home = made(folder / "made")
    runs = [home / name for name in ("whole", "half", "compared", "tabled")]
    files = [file for out in runs for file in sorted(out.rglob("*")) if file.name in NAMES]
    whole = {file: file.read_bytes() for file in files}
    expected = {out: _told(out) for out in runs}

    def attempt(rng: Random) -> None:
        file = rng.choice(files)
        out = next(out for out in runs if out in file.parents)
        sealed = rng.random() < 0.5 and (file.parent / "summary.json").exists()
        try:
            changed = mutated_file(rng, file.name, whole[file])
            file.write_bytes(changed)
            if sealed:
                reseal(file.parent)
            found = naming(out, lambda: _told(out))
            same = changed == whole[file] or _shown(found) == _shown(expected[out])
            news = out.name == "half" and file.name == "rounds.jsonl"  # a log may have got longer
            if not sealed and not news and not same and not found.damage:
                raise Wrong(f"{file.relative_to(home)}: what is shown changed without a word")
            if shown and MISSING in article([found]) and not found.damage:
                raise Wrong(f"{file.relative_to(home)}: a part of the page is missing: {_missing(found)}")
        finally:
            for one in {file, file.parent / "summary.json"} & whole.keys():
                one.write_bytes(whole[one])

    return attempt


def _told(out: Path) -> Any:
    return LiveRun(out).read()


def _shown(found: Any) -> tuple[Any, ...]:
    summary = {name: value for name, value in found.summary.items() if name != "config"}  # some may change
    return summary, found.rounds, found.clients


def _missing(found: Any) -> str:
    text = article([found])
    start = text.index(MISSING) + len(MISSING)
    return text[start : start + 100]


def reproduced(folder: Path) -> Attempt:
    """runs.jsonl and summary.json of an experiment."""
    from ifca.paper.experiments import MODULES
    from ifca.paper.experiments import experiment as experiment_of
    from ifca.paper.summary import write_summary
    from ifca.report.paper.results_page import results_page

    source = Path("results") / "rotated-mnist"
    for name in ("runs.jsonl", "summary.json"):
        (folder / "rotated-mnist").mkdir(exist_ok=True)
        shutil.copy(source / name, folder / "rotated-mnist" / name)
    experiments = {name: experiment_of(name) for name in MODULES}
    experiment, file = experiments["rotated-mnist"], folder / "rotated-mnist" / "runs.jsonl"
    lines = file.read_bytes().splitlines()[:12]
    table = folder / "rotated-mnist" / "summary.json"
    whole = table.read_bytes()

    def attempt(rng: Random) -> None:
        if rng.random() < 0.6:
            content = b"\n".join(lines) + b"\n"
            file.write_bytes(mutated_file(rng, file.name, content))
            naming(file, lambda: write_summary(experiment, file.parent, quick=False))
        else:
            table.write_bytes(mutated_file(rng, table.name, whole))
            naming(table, lambda: results_page(folder, "", experiments))

    return attempt
