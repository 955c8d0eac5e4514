"""tune: settings of an IFCA compared on a federation, by the clients' held-out loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sklearn.base import clone

from ifca.core.errors import InvalidInput
from ifca.data import Federation
from ifca.training import Job
from ifca.training.preflight import check
from ifca.training.successive_halving import (
    Line,
    Settings,
    grid_of,
    steps_around,
    successive_halving,
    table_of,
    tried,
    verdict_of,
)


class _Front(Protocol):
    """An IFCA."""

    step_size: float

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def _job(self, federation: Federation) -> Job: ...


@dataclass(frozen=True)
class Tuned:
    """Settings compared; best: arguments of IFCA. table: a row for each, the best first."""

    best: Settings
    table: list[dict[str, Any]]
    because: str
    """What is recommended, and how sure that is."""


def tune(model: _Front, federation: Federation, *, rounds: int = 10, **values: Sequence[Any]) -> Tuned:
    """Compare settings of an IFCA; values: for each of its arguments those to try, step_size=[0.03, 0.1].

    All are trained for so many rounds, the better half twice as long, and so on. They are judged by the loss
    of clients on samples that they set aside; test data is not looked at. Without values: four step sizes.
    """
    if rounds < 1:
        raise InvalidInput(f"rounds must be at least 1, got {rounds}")
    wrong = sorted(set(values) - set(model.get_params(deep=False)))
    if wrong:
        raise InvalidInput(f"{wrong[0]}: is no argument of IFCA")
    empty = [name for name, some in values.items() if isinstance(some, str) or not len(some)]
    if empty:
        raise InvalidInput(f"{empty[0]}: give a list of values to try")
    grid = values or {"step_size": steps_around(model.step_size)}
    jobs = [(one, _job(model, one, federation)) for one in grid_of(dict(grid))]
    for _, job in jobs:
        check(job)

    def trained(_level: int, settings: Settings, most: int) -> Line:
        return tried(next(job for one, job in jobs if one is settings), most)

    table = table_of(successive_halving([one for one, _ in jobs], rounds, trained))
    return Tuned(table[0]["settings"], table, verdict_of(table, dict(grid)))


def _job(model: _Front, settings: Settings, federation: Federation) -> Job:
    made: _Front = clone(model).set_params(**settings)
    return made._job(federation)
