"""Methods x regimes x seeds, as units that are never repeated. Torch, numpy, scipy, scikit-learn are enough:

python -m ifca.bench.methods [--out results] [--regime mnist-turned,digits-pair] [--method ifca,global]
                             [--seeds 0:10] [--time-limit MINUTES] [--workers 4] [--device cuda]

Lines are appended to OUT/methods/runs.jsonl, and OUT/methods/summary.json is made of them;
'ifca bench-methods --no-run' adds the table and the picture. Data are looked for in IFCA_DATA.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ifca.bench.regimes import regime_of, regimes
from ifca.bench.rivals import RIVALS, run
from ifca.bench.standings import write_standings
from ifca.core.errors import InvalidInput
from ifca.data.public.places import VARIABLE
from ifca.data.public.public_sets import not_here, source_of
from ifca.runs.units.choice import chosen_names, chosen_seeds
from ifca.runs.units.execute import OnLine, execute
from ifca.runs.units.lines import key, read_lines
from ifca.runs.units.time_left import Estimate, main_of_units
from ifca.runs.units.unit import Line, Unit

NAME = "methods"
SEEDS = range(10)  # the table's; those from 1000 on are for setting constants


@dataclass(frozen=True)
class Choice:
    """Which part of the bench, and where."""

    regimes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seeds: range | None = None
    device: str = "auto"
    workers: int | None = None
    minutes: float | None = None


def units(choice: Choice) -> list[Unit]:
    """Seed by seed, so that a part is a fair part; the oracle only where the true clusters are known."""
    for name in choice.methods:
        if name not in RIVALS:
            raise InvalidInput(f"unknown method {name} (known: {', '.join(RIVALS)})")
    chosen = [regime_of(name) for name in choice.regimes or regimes()]
    return [
        Unit(NAME, regime.name, method, seed)
        for seed in (SEEDS if choice.seeds is None else choice.seeds)
        for regime in chosen
        for method in choice.methods or RIVALS
        if regime.populations is not None or not RIVALS[method].told
    ]


def bench_methods(out: Path, choice: Choice, on_line: OnLine | None = None) -> list[str]:
    """Run the units that have no line yet, write the summary; a sentence for each regime without its data."""
    folder, asked = out / NAME, units(choice)
    done = {key(line) for line in read_lines(folder)}
    left_out = {
        unit.setting: f"{unit.setting} needs {not_here(name)}"
        for unit in asked
        for name in regime_of(unit.setting).needs
        if unit.key not in done and source_of(name).where(None) is None
    }
    todo = [unit for unit in asked if unit.key in done or unit.setting not in left_out]
    if left_out and not todo:
        raise InvalidInput(next(iter(left_out.values())))
    seconds = None if choice.minutes is None else 60 * choice.minutes
    execute(todo, folder, run, device=choice.device, workers=choice.workers, on_line=on_line, seconds=seconds)
    if read_lines(folder):
        write_standings(folder)
    return list(left_out.values())


def main() -> None:
    """Parse, run what is missing, say so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--data-dir", help=f"folder of the data sets; without it: {VARIABLE}")
    for name in ("--regime", "--method", "--seeds"):
        parser.add_argument(name)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", "--processes", type=int, dest="workers", help="default: one per GPU")
    parser.add_argument("--time-limit", type=float, help="minutes after which no unit is begun")
    given = parser.parse_args()
    if given.data_dir:
        os.environ[VARIABLE] = given.data_dir  # for other processes too
    estimate = Estimate()

    def say(line: Line, done: int, of: int) -> None:
        sys.stdout.write(f"{estimate.describe(line, done, of)}\n")
        sys.stdout.flush()

    with main_of_units():
        names, seeds = (chosen_names(given.regime), chosen_names(given.method)), chosen_seeds(given.seeds)
        choice = Choice(*names, seeds, given.device, given.workers, given.time_limit)
        for sentence in bench_methods(given.out, choice, say):
            sys.stderr.write(f"left out: {sentence}\n")


if __name__ == "__main__":
    main()
