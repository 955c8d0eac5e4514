"""Success probabilities on mixtures of linear regressions: the four panels of the paper's figure.

A unit is a trial: one draw of theta* and X, which serves all points of the panel; all initialisations and
steps of a point are columns of one sweep (engines/sweep.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.metrics import distance
from ifca.core.random import generator
from ifca.core.recipe import Recipe
from ifca.data import mixture_of_regressions
from ifca.engines.sweep import sweep
from ifca.models import linear
from ifca.paper.frame import Experiment, Scale
from ifca.paper.panels import Panel, Point, panels
from ifca.runs.units.unit import Line, Unit
from ifca.training import Fitted, Job, fit

TRIAL = "all points of a trial"
FIRST = 2  # initialisations that are tried before the others


def run(unit: Unit, device: torch.device) -> Line:
    """A trial of all points by plain IFCA, or one point by the default algorithm."""
    panel = panels(unit.quick)[unit.experiment]
    if unit.setting != TRIAL:
        point = next(point for point in panel.points if point.name == unit.setting)
        return by_default(panel, point, unit.seed, device)
    found = {point.name: best for point, best in trial(panel, unit.seed, device)}
    threshold = {point.name: point.threshold for point in panel.points}
    return {"distance": {name: _finite(best) for name, best in found.items()}, "threshold": threshold}


def trial(panel: Panel, seed: int, device: torch.device) -> Iterator[tuple[Point, float]]:
    """The smallest distance to theta* among the starts and steps that were needed, for each point.

    The most promising are tried first, the others only where none of those succeeded.
    """
    m, n = (max(getattr(point, name) for point in panel.points) for name in "mn")
    shape = (m, n, panel.dimension)
    x = torch.randn(shape, generator=generator(seed, "train-x")).to(device)
    eps = torch.randn(shape[:2], generator=generator(seed, "train-noise")).to(device)
    star = torch.full((panel.k, panel.dimension), 0.5)
    star = torch.bernoulli(star, generator=generator(seed, "theta-star")).to(device)
    for size in dict.fromkeys((point.m, point.n) for point in panel.points):
        points = [point for point in panel.points if (point.m, point.n) == size]
        some, noise = x[: size[0], : size[1]].contiguous(), eps[: size[0], : size[1]]
        best = dict.fromkeys(points, float("inf"))
        for theta, step in _starts(panel, size, seed, device):
            left = [point for point in points if best[point] > point.threshold]
            for point, found in _distances(left, some, noise, star, theta, step, panel.rounds):
                best[point] = min(best[point], found)
        yield from best.items()


def _distances(
    points: list[Point], x: Tensor, noise: Tensor, star: Tensor, theta: Tensor, step: Tensor, rounds: int
) -> Iterator[tuple[Point, float]]:
    """From these starts; all points in one sweep."""
    if not points:
        return
    cluster = torch.arange(len(x), device=x.device) * len(star) // len(x)
    clean = torch.einsum("mnd,md->mn", x, star[cluster])
    y = torch.stack([point.separation * clean + point.sigma * noise for point in points])
    y = y.repeat_interleave(len(theta), 0)
    found, _ = sweep(x, y, theta.repeat(len(points), 1, 1), step.repeat(len(points)), rounds, cluster)
    for point, models in zip(points, torch.split(found, len(theta)), strict=True):
        yield point, min(_distance(one, point.separation * star) for one in models)


def by_default(panel: Panel, point: Point, seed: int, device: torch.device) -> Line:
    """One training of the default algorithm."""
    job, star = one_start(panel, point, seed, device)
    return verdict(distance_to(star, fit(job)), point)


def one_start(panel: Panel, point: Point, seed: int, device: torch.device) -> tuple[Job, Tensor]:
    """The job of one initialisation and one step at a point, and theta*."""
    data, star = mixture_of_regressions(
        clients=point.m,
        samples=point.n,
        dimension=panel.dimension,
        clusters=panel.k,
        separation=point.separation,
        noise=point.sigma,
        seed=seed,
    )
    recipe = Recipe(k=panel.k, rounds=panel.rounds, option="gradient", step_size=panel.step, seed=seed)
    recipe = replace(recipe, initial="bernoulli", evaluate_every=0)
    return Job(data, recipe, lambda: linear(panel.dimension), device=device), star


def distance_to(star: Tensor, fitted: Fitted) -> float:
    """Of the trained models to theta*."""
    theta = fitted.state.theta["fc1.weight"][:, 0]
    return _distance(theta, star.to(theta.device))


def verdict(found: float, point: Point) -> Line:
    """A distance, and whether it is a success."""
    return {"distance": _finite(found), "success": found <= point.threshold}


def _starts(
    panel: Panel, size: tuple[int, int], seed: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Every initialisation with every step, in parts: models [runs, k, d] and steps [runs]."""
    half = torch.full((panel.k, panel.dimension), 0.5)
    drawn = [torch.bernoulli(half, generator=generator(seed, "initial", i)) for i in range(panel.starts)]
    models = torch.stack(drawn).to(device)
    best = panel.largest_step(*size)
    others = tuple(step for step in panel.steps if step != best)
    parts = ((models[:FIRST], (best,)), (models[FIRST:], (best,)), (models, others))
    for some, steps in ((some, steps) for some, steps in parts if len(some) and steps):
        yield some.repeat(len(steps), 1, 1), torch.tensor(steps, device=device).repeat_interleave(len(some))


def _distance(theta: Tensor, star: Tensor) -> float:
    """After matching one to one (D3); infinite where a model has diverged or is not there."""
    if not bool(theta.isfinite().all()):
        return float("inf")
    return distance({"theta": theta}, {"theta": star})


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def spread(line: Line) -> list[Line]:
    """A trial as a line for each point."""
    if line["setting"] != TRIAL:
        return [line]
    return [
        {
            **line,
            "setting": name,
            "success": found is not None and found <= line["threshold"][name],
            "distance": found,
            "seconds": line["seconds"] / len(line["distance"]),
        }
        for name, found in line["distance"].items()
    ]


def _scale(panel: Panel, trials: int) -> Scale:
    return Scale({TRIAL: ("ifca-plain",), **dict.fromkeys(panel.ours, ("ifca",))}, trials)


def _experiment(name: str) -> Experiment:
    full, quick = panels(False)[name], panels(True)[name]
    axis = "R, a curve for each sigma" if name in ("synthetic-a", "synthetic-b") else "m, a curve for each n"
    return Experiment(
        name=name,
        title=f"Mixture of linear regressions, panel ({name[-1]}): k = {full.k}, success against {axis}",
        full=_scale(full, 40),
        quick=_scale(quick, 8),
        run=run,
        metrics=("success",),
        about=f"d = 1000, {full.rounds} rounds, 40 trials; plain IFCA: success if any of 10 initialisations "
        f"x steps {', '.join(map(str, full.steps))} ends within 0.6 sigma of theta* (sigma = 0: 0.001). "
        f"IFCA (default): ONE initialisation and the step {full.step:g}, at sigma = 0.1 and n = 100. "
        "95% intervals are Wilson's.",
        about_quick="d = 100, a fifth of the clients, half of the samples, 3 initialisations, 8 trials",
        deviations=("D1", "D2", "D3", "D4", "D16", "D37", "D38"),
        spread=spread,
    )


EXPERIMENTS = {name: _experiment(name) for name in panels(False)}
