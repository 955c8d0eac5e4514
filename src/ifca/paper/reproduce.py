"""One experiment from its units to its summary, or all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ifca.core.errors import InvalidInput
from ifca.data.public.public_sets import not_here, source_of
from ifca.paper.experiments import experiment, run_unit_of
from ifca.paper.frame import Experiment
from ifca.paper.summary import finished, write_summary
from ifca.runs.units.execute import OnLine, execute
from ifca.runs.units.lines import key
from ifca.runs.units.pool import Pool
from ifca.runs.units.unit import Unit


@dataclass(frozen=True)
class Choice:
    """Which part of an experiment, and where."""

    quick: bool = False
    device: str = "auto"
    workers: int | None = None
    seeds: range | None = None
    algorithms: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    run: bool = True  # False: only the summary of what is there
    pool: Pool | None = None  # these processes in place of workers


def folder_of(out: Path, name: str, quick: bool) -> Path:
    """OUT/NAME, or OUT/quick/NAME."""
    return (out / "quick" if quick else out) / name


def reproduce(
    name: str, out: Path, choice: Choice, on_line: OnLine | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Run the units that have no line yet; the summary of all lines, and a sentence for what was left out."""
    found, folder = experiment(name), folder_of(out, name, choice.quick)
    if not choice.run:
        if not finished(found, folder, choice.quick):
            raise InvalidInput(f"{folder}: nothing is run there yet")
        return write_summary(found, folder, choice.quick), []
    units = found.units(
        quick=choice.quick, seeds=choice.seeds, algorithms=choice.algorithms, settings=choice.settings
    )
    done = {key(line) for line in finished(found, folder, choice.quick)}
    left_out = without_data(found, [unit for unit in units if unit.key not in done])
    units = [unit for unit in units if unit.key in done or unit.setting not in left_out]
    if left_out and not units:
        raise InvalidInput(next(iter(left_out.values())))
    how: dict[str, Any] = {"device": choice.device, "workers": choice.workers, "pool": choice.pool}
    execute(units, folder, run_unit_of, on_line=on_line, **how)
    return write_summary(found, folder, choice.quick), list(left_out.values())


def without_data(found: Experiment, todo: list[Unit]) -> dict[str, str]:
    """Settings that cannot be run because their data is not here, with a sentence each."""
    return {
        unit.setting: f"{found.name}: {unit.setting} needs {not_here(name)}"
        for unit in todo
        for name in found.data(unit.setting)
        if source_of(name).where(None) is None
    }
