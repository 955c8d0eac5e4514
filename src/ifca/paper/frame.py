"""What an experiment is: settings x algorithms x seeds, each a unit that becomes one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from ifca.core.errors import InvalidInput
from ifca.runs.units.unit import Line, Unit


@dataclass(frozen=True)
class Scale:
    """How much of an experiment: its algorithms by setting, and its number of seeds."""

    algorithms: Mapping[str, tuple[str, ...]]
    seeds: int
    fewer: Mapping[str, int] = field(default_factory=dict)  # seeds of the settings that have fewer


Paper = Mapping[tuple[str, str, str], tuple[float, float | None]]
"""The paper's numbers: setting, algorithm, metric -> mean, ±."""


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper."""

    name: str
    title: str
    full: Scale
    quick: Scale
    run: Callable[[Unit, torch.device], Line]
    metrics: tuple[str, ...]  # keys of a line that become rows of the summary, where they are there
    about: str  # what was done, for the page of results
    about_quick: str  # what the quick version leaves out
    paper: Paper = field(default_factory=dict)
    deviations: tuple[str, ...] = ()
    data: Callable[[str], tuple[str, ...]] = lambda _setting: ()  # data sets that a setting needs
    spread: Callable[[Line], list[Line]] = lambda line: [line]  # a line of several settings as several
    compared: Callable[[list[Line]], list[Line]] = lambda lines: lines  # with what takes several lines
    derived: Callable[[list[Line]], list[Line]] = lambda _lines: []  # rows that are no mean over seeds

    def scale(self, quick: bool) -> Scale:
        """Full or quick."""
        return self.quick if quick else self.full

    def how(self, quick: bool) -> str:
        """What was done; of a quick version also what it leaves out."""
        return self.about + (f" Quick: {self.about_quick}." if quick else "")

    def units(
        self,
        *,
        quick: bool = False,
        seeds: range | None = None,
        algorithms: tuple[str, ...] = (),
        settings: tuple[str, ...] = (),
    ) -> list[Unit]:
        """All units, or those that are chosen; seed by seed, so that a part is a fair part."""
        scale = self.scale(quick)
        known = sorted({one for some in scale.algorithms.values() for one in some})
        _check("setting", settings, list(scale.algorithms))
        _check("algorithm", algorithms, known)
        found = [
            Unit(self.name, setting, algorithm, seed, quick)
            for seed in (range(scale.seeds) if seeds is None else seeds)
            for setting, some in scale.algorithms.items()
            for algorithm in some
            if (seeds is not None or seed < scale.fewer.get(setting, scale.seeds))
            and (not settings or setting in settings)
            and (not algorithms or algorithm in algorithms)
        ]
        if not found:
            raise InvalidInput(f"{self.name}: {', '.join(algorithms)} is not run in {', '.join(settings)}")
        return found


def _check(what: str, given: tuple[str, ...], known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidInput(f"unknown {what} {name} (known: {', '.join(known)})")
