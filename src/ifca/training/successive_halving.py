"""Settings compared by the clients' held-out loss: each level trains the better half twice as long."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ifca.core.errors import Diverged
from ifca.training.early_stopping import held_out_losses
from ifca.training.fit import fit
from ifca.training.job import Job
from ifca.training.privacy import refuse_search
from ifca.training.rounds import OnRound

FACTORS = (1 / 9, 1 / 3, 1.0, 3.0)  # of the step size

Settings = dict[str, Any]
Line = dict[str, Any]
"""One training: its level, rounds and settings, and the held-out loss of every client."""


def tried(job: Job, rounds: int, on_round: OnRound | None = None) -> Line:
    """Train for at most so many rounds, without test data; the clients' held-out losses.

    Clients set one in five of their samples aside, the same for all settings of one seed.
    """
    refuse_search(job.recipe)
    recipe = replace(job.recipe, rounds=rounds, early_stopping=True, on_divergence="stop", personalise=False)
    job = replace(job, recipe=recipe, federation=replace(job.federation, test=None), metrics={})
    try:
        fitted = fit(job, on_round=on_round)
    except Diverged as reason:
        return {"held_out_loss": None, "losses": None, "diverged": str(reason)}
    losses = held_out_losses(job.make_engine(), job.federation.train, fitted.state)
    mean = float(losses.nanmean())
    return {
        "held_out_loss": mean if math.isfinite(mean) else None,
        "losses": [loss if math.isfinite(loss) else None for loss in losses.tolist()],
    }


def successive_halving(
    candidates: Sequence[Settings], rounds: int, run: Callable[[int, Settings, int], Line]
) -> list[Line]:
    """The lines of all trainings. run: level, settings, rounds -> what tried says of them."""
    alive, found, level = list(candidates), list[Line](), 1
    while True:
        now = [
            {"level": level, "rounds": rounds, "settings": one, **run(level, one, rounds)} for one in alive
        ]
        found += now
        if len(alive) <= 2:
            return found
        better = sorted(range(len(alive)), key=lambda i: (_loss(now[i]), i))[: math.ceil(len(alive) / 2)]
        alive, level, rounds = [alive[i] for i in sorted(better)], level + 1, 2 * rounds


def table_of(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """A row for each of the settings, at the last level that they reached, the best first.

    behind: what its clients lose more than under the best settings at that level; standard_errors: that,
    divided by its standard error over the clients.
    """
    last = {_key(line): line for line in lines}
    rows = sorted(last.values(), key=lambda line: (-line["level"], _loss(line)))
    best = {line["level"]: line for line in lines if _key(line) == _key(rows[0])}
    shown = ("settings", "level", "rounds", "held_out_loss")
    return [{name: row[name] for name in shown} | _behind(row, best[row["level"]]) for row in rows]


def _behind(row: Line, best: Line) -> dict[str, float | None]:
    if row is best or row["losses"] is None or best["losses"] is None:
        return {"behind": 0.0 if row is best else None, "standard_errors": None}
    both = np.array([row["losses"], best["losses"]], np.float64)  # [2, m], None becomes NaN
    more = (both[0] - both[1])[np.isfinite(both).all(0)]
    error = float(more.std(ddof=1) / math.sqrt(len(more))) if len(more) > 1 else 0.0
    mean = float(more.mean()) if len(more) else 0.0
    return {"behind": mean, "standard_errors": mean / error if error > 0 else None}


def _key(line: Line) -> str:
    return repr(sorted(line["settings"].items(), key=lambda pair: pair[0]))


def _loss(line: Line) -> float:
    return math.inf if line["held_out_loss"] is None else float(line["held_out_loss"])


def steps_around(step: float) -> list[float]:
    """Step sizes to try where none are given."""
    return [float(f"{factor * step:.3g}") for factor in FACTORS]


def grid_of(values: Mapping[str, Sequence[Any]]) -> list[Settings]:
    """Every combination of the values."""
    found: list[Settings] = [{}]
    for name, some in values.items():
        found = [{**one, name: value} for one in found for value in some]
    return found


def verdict_of(table: Sequence[dict[str, Any]], values: Mapping[str, Sequence[Any]]) -> str:
    """What is recommended and how sure that is, in a few sentences."""
    best = table[0]
    words = ", ".join(f"{name} = {value}" for name, value in best["settings"].items())
    parts = [f"Recommended: {words}"]
    if best["held_out_loss"] is None:
        return "Training diverged with all settings: try smaller steps."
    if len(table) > 1:
        parts.append(_sureness(table[1]))
    for name, some in values.items():
        numbers = [value for value in some if isinstance(value, int | float)]
        edge = len(numbers) > 2 and best["settings"][name] in (min(numbers), max(numbers))
        if edge:
            which = "largest" if best["settings"][name] == max(numbers) else "smallest"
            parts.append(f"That is the {which} {name} tried, so beyond it there may be better ones")
    parts.append("Chosen by the loss of clients on samples that they set aside; no test data was used")
    return " ".join(f"{part}." for part in parts)


def _sureness(second: dict[str, Any]) -> str:
    words = ", ".join(f"{name} = {value}" for name, value in second["settings"].items())
    errors = second["standard_errors"]
    if second["behind"] is None:
        return f"The second best ({words}) diverged"
    if errors is None:
        return f"The second best ({words}) loses {second['behind']:.2g} more"
    sure = "clear" if errors > 2 else "no clear difference: take the one that costs less"
    return (
        f"The second best ({words}) loses {second['behind']:.2g} more, {errors:.1f} standard errors: {sure}"
    )
