"""Theorem 1 and Lemma 1 in numbers: linear regressions, option I, fresh samples in every round."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import torch

from ifca.core.identity import identity
from ifca.core.random import generator
from ifca.core.recipe import Recipe
from ifca.data import Federation, mixture_of_regressions
from ifca.models import linear
from ifca.paper.frame import Experiment, Scale
from ifca.paper.statistics import line_through, power_law
from ifca.paper.theory import (
    NAME,
    described,
    distances_by_round,
    exponent_row,
    exponents,
    near,
    number,
)
from ifca.runs.units.unit import Line, Unit
from ifca.training import Job

ROUNDS, ALPHA = 20, 0.2
VARIED = {
    "sigma": ("0.05", "0.1", "0.2", "0.4"),
    "d": ("10", "20", "40", "80"),
    "m": ("20", "40", "80", "160"),
    "n'": ("10", "20", "40", "80"),
    "p": ("1/2", "1/4", "1/8"),
}
THEOREM = {
    "sigma": (1.0, ""),
    "d": (0.5, ""),
    "m": (-0.5, ""),
    "n'": (-0.5, ""),
    "p": (-1.0, "a bound; at most so fast"),
}
BOUND = "of a bound on the errors"
SIZES = (4, 8, 12, 16, 24, 32)  # n' of Lemma 1
ALPHAS, RHOS = (0.1, 0.2, 0.3, 0.4), (0.25, 0.5, 1.0, 4.0)
CLIENTS, DIMENSION = 4000, 10
FLOORS = [f"{name}={value}" for name, some in VARIED.items() for value in some]
ERRORS = [f"alpha={a:g} rho=1" for a in ALPHAS] + [f"rho={r:g} alpha=0.3" for r in RHOS]
QUICK = [s for s in FLOORS if s.split("=")[0] in ("sigma", "n'")] + ERRORS[:4]


@dataclass(frozen=True)
class Base:
    """What is not varied."""

    sigma: float = 0.1
    d: int = 20
    m: int = 40
    n: int = 40  # n', fresh samples of a client in a round, once for the identity and once for the gradient
    k: int = 2  # p = 1/k


def run(unit: Unit, _device: torch.device) -> Line:
    """A training from near theta*, or identities chosen between two models; both are quickest on a CPU."""
    if unit.setting in ERRORS:
        return wrong_identities(unit.setting, unit.seed)
    name, at = unit.setting.split("=")[0], number(unit.setting)
    base = {
        "sigma": Base(sigma=at),
        "d": Base(d=int(at)),
        "m": Base(m=int(at)),
        "n'": Base(n=int(at)),
        "p": Base(k=round(1 / at), m=80),
    }[name]
    return trained(base, unit.seed)


def trained(base: Base, seed: int) -> Line:
    """With gamma = 1/(4p): the theorem's c/p, and a contraction of 1/2."""
    data, star = mixture_of_regressions(
        clients=base.m,
        samples=2 * ROUNDS * base.n,
        dimension=base.d,
        clusters=base.k,
        separation=1.0,
        noise=base.sigma,
        seed=seed,
    )
    recipe = Recipe(algorithm="ifca-plain", k=base.k, rounds=ROUNDS, option="gradient", resample=True)
    recipe = replace(recipe, step_size=base.k / 4, evaluate_every=0, seed=seed)
    first = near(star, ALPHA, generator(seed, "near"))
    return described(distances_by_round(Job(data, recipe, lambda: linear(base.d)), star, first))


def wrong_identities(setting: str, seed: int) -> Line:
    """Lemma 1: clients of cluster 1 choose between a model (1/2 - alpha) Delta from theta*_1 and one that
    is (1/2 + alpha) Delta from it; the share that chooses wrongly, for several n'. Delta^2 = rho sigma^2.
    """
    given = dict(part.split("=") for part in setting.split(" "))
    alpha, rho = float(given["alpha"]), float(given["rho"])
    delta = math.sqrt(rho)  # sigma = 1
    theta = torch.zeros(2, DIMENSION)
    theta[0, 0], theta[1, 1] = (0.5 - alpha) * delta, (0.5 + alpha) * delta  # theta*_1 = 0
    errors = {}
    for n in SIZES:
        data, _ = mixture_of_regressions(
            clients=CLIENTS,
            samples=n,
            dimension=DIMENSION,
            clusters=1,
            separation=0.0,
            noise=1.0,
            seed=1000 * seed + n,
        )
        job = Job(Federation(data.train), Recipe(algorithm="ifca-plain", k=2), lambda: linear(DIMENSION))
        losses = job.make_engine().score({NAME: theta[:, None, :]}, data.train).loss
        errors[str(n)] = float((identity(losses) == 1).double().mean())
    return {"errors": errors, "identity_error": errors[str(SIZES[-1])]}


def derived(lines: list[Line]) -> list[Line]:
    """Exponents of the floor; rates of the identity error, and how they grow with alpha and rho."""
    rows = exponents(lines, "floor", THEOREM, number)
    for name, others in (("alpha", "rho=1"), ("rho", "alpha=0.3")):
        some = [line for line in lines if line["setting"].startswith(f"{name}=") and "errors" in line]
        rates = [(line["setting"], rate(line["errors"])) for line in some]
        known = [(_signal(setting), found) for setting, found in rates if found is not None]
        if len({signal for signal, _ in known}) > 1 and len(known) > 2:
            what = f"rate of identity errors against alpha rho/(rho+1), {name} varied ({others})"
            rows.append(exponent_row(what, power_law(*zip(*known, strict=True)), 2.0, some, BOUND))
    return rows


def rate(errors: dict[str, float]) -> float | None:
    """Of an error that falls as exp(-rate n'), from errors by n'; None where too few errors were seen.

    An error of probability P is one of a normal variable beyond z with Q(z) = P, and Q(z) falls as
    exp(-z^2/2): the slope of z^2/2 is the rate, without the polynomial factor that bends log P.
    """
    seen = [
        (int(n), NormalDist().inv_cdf(error)) for n, error in errors.items() if 10 / CLIENTS <= error < 0.5
    ]
    if len(seen) < 3:
        return None
    found = line_through([n for n, _ in seen], [z * z / 2 for _, z in seen]).slope
    return found if found > 0 else None


def _signal(setting: str) -> float:
    given = {name: float(value) for name, value in (part.split("=") for part in setting.split(" "))}
    return given["alpha"] * given["rho"] / (given["rho"] + 1)


EXPERIMENTS = {
    "theory-linear": Experiment(
        name="theory-linear",
        title="Theorem 1 and Lemma 1: linear model, option I, fresh samples",
        full=Scale(dict.fromkeys([*FLOORS, *ERRORS], ("ifca-plain",)), 10),
        quick=Scale(dict.fromkeys(QUICK, ("ifca-plain",)), 4),
        run=run,
        metrics=("floor", "contraction", "identity_error"),
        about="Plain IFCA, which the theorem is about. "
        f"The k models begin (1/2 - {ALPHA}) Delta from theta*; 2T = {2 * ROUNDS} disjoint parts of n' "
        "samples of each client, gamma = 1/(4p). Where nothing else is said sigma = 0.1, d = 20, m = 40 (p "
        "varied: 80), n' = 40, p = 1/2. The floor is the mean distance of the last third of the rounds, the "
        "contraction the factor of a round while the distance is at least three times the floor. Wrong "
        f"identities are counted over {CLIENTS} clients for n' from {SIZES[0]} to {SIZES[-1]}; the table has "
        "the largest n'.",
        about_quick="only sigma, n' and alpha are varied, 4 seeds",
        deviations=("D1", "D16", "D27"),
        derived=derived,
    )
}
