"""Measures that both theory experiments share: distances by round, contraction, floor, fitted exponents."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from ifca.core.callbacks import Record
from ifca.core.metrics import distance
from ifca.core.types import ClusterState, Params
from ifca.paper.statistics import Slope, line_through, power_law
from ifca.runs.units.unit import Line
from ifca.training import Job, fit

NAME = "fc1.weight"


def distances_by_round(job: Job, star: Tensor, first: Tensor) -> list[float]:
    """Mean over the clusters of ||theta - theta*||, matched, before and after each round. star: [k, d]."""
    found = [_distance(first, star)]

    def look(state: ClusterState, _record: Record) -> None:
        found.append(_distance(state.theta[NAME][:, 0], star))

    warm: Params = {NAME: first[:, None, :]}
    fit(replace(job, warm_start=warm), on_round=look)
    return found


def near(star: Tensor, alpha: float, rng: torch.Generator, condition: float = 1.0) -> Tensor:
    """Initial models at (1/2 - alpha) sqrt(lambda/L) Delta from theta*, in random directions: as far as the
    theorems allow. condition: lambda/L.
    """
    direction = torch.randn(star.shape, generator=rng)
    radius = (0.5 - alpha) * math.sqrt(condition) * float(torch.pdist(star).min())
    found: Tensor = star + radius * direction / direction.norm(dim=1, keepdim=True)
    return found


def described(found: Sequence[float]) -> Line:
    """The floor (mean of the last third of the rounds) and the factor a round before it is reached.

    The factor is fitted to the rounds whose distance is at least three times the floor.
    """
    floor = fmean(found[-(len(found) // 3) :])
    early = [d for d in found if d >= 3 * floor]
    line: Line = {"floor": floor, "distance_by_round": [float(f"{d:.4g}") for d in found]}
    if len(early) >= 3:
        slope = line_through(list(range(len(early))), [math.log(d) for d in early]).slope
        line["contraction"] = math.exp(slope)
    return line


def exponent_row(
    setting: str, fitted: Slope, theorem: float | None, lines: list[Line], note: str = ""
) -> Line:
    """A row of the summary that is no mean over seeds: a fitted exponent with its 95% interval."""
    return {
        "setting": setting,
        "algorithm": "ifca-plain",
        "metric": "exponent",
        "mean": fitted.slope,
        "std": None,  # it is a fit to all seeds; the interval says how sure it is
        "interval": [fitted.low, fitted.high],
        "seeds": sorted({line["seed"] for line in lines}),
        "values": [fitted.slope],
        "paper_mean": theorem,
        "paper_std": None,
        "note": note,
        "seconds": round(sum(line["seconds"] for line in lines), 2),
    }


def exponents(
    lines: list[Line],
    what: str,
    varied: dict[str, tuple[float, str]],
    value: Callable[[str], float],
) -> list[Line]:
    """The exponent of a measure against each varied quantity; varied: prefix -> the theorem's, a note."""
    found = []
    for prefix, (theorem, note) in varied.items():
        some = [line for line in lines if line["setting"].startswith(f"{prefix}=") and what in line]
        at = [value(line["setting"]) for line in some]
        if len(set(at)) > 1 and len(some) > 2:
            fitted = power_law(at, [line[what] for line in some])
            found.append(exponent_row(f"{what} against {prefix}", fitted, theorem, some, note))
    return found


def number(setting: str) -> float:
    """The value of a setting such as d=20 or p=1/4."""
    above, _, below = setting.split("=")[1].split(" ")[0].partition("/")
    return float(above) / float(below or 1)


def _distance(theta: Tensor, star: Tensor) -> float:
    return distance({NAME: theta}, {NAME: star})
