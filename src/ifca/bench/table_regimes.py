"""Regimes on tables that scikit-learn ships, and on a mixture of regressions."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from torch import Tensor

from ifca.bench.regimes import Partitioned, Regime, linear_model, logistic_model, small_mlp
from ifca.bench.sets import table
from ifca.data import Deal, Federation, Population, mixture_of_regressions
from ifca.models.task import squared_error

SIGMA = 0.3
PLAIN = Population()
cancer, wine, diabetes = (partial(table, name) for name in ("breast_cancer", "wine", "diabetes"))


def gaussian(output: Tensor, y: Tensor) -> Tensor:
    """-log of a Gaussian likelihood of known sigma, without its constant: below zero where it fits."""
    return squared_error(output, y) / (2 * SIGMA**2) + math.log(SIGMA)


def _regressions(clusters: int, seed: int) -> Federation:
    return mixture_of_regressions(
        clients=60, samples=40, dimension=20, clusters=clusters, noise=SIGMA, test_samples=40, seed=seed
    )[0]


def interactions(seed: int) -> Federation:
    """40 sites of 100 rows: the sign of the product of two features; the opposite at half of them."""
    rng = np.random.default_rng([seed, 7])
    x = rng.standard_normal((40, 150, 6)).astype(np.float32)
    y = (x[..., 0] * x[..., 1] > 0) ^ (np.arange(40) % 2 == 1)[:, None]
    return Federation.from_arrays(
        list(x[:, :100]),
        list(y[:, :100].astype(int)),
        list(x[:, 100:]),
        list(y[:, 100:].astype(int)),
        clusters=[i % 2 for i in range(40)],
    )


TABLES = (
    Regime(
        "cancer-drift",
        "hospitals whose sensors drifted apart",
        2,
        Partitioned(cancer, Deal(12, 60, 50), (PLAIN, Population(drift=1.0))),
        model=logistic_model,
        populations=2,
    ),
    Regime(
        "cancer-swapped",
        "half of the sites code the labels the other way",
        2,
        Partitioned(cancer, Deal(20, 40, 40), (PLAIN, Population(swap=(0, 1)))),
        model=logistic_model,
        populations=2,
    ),
    Regime(
        "cancer-sites",
        "sites of unequal size without populations, k = 3 asked",
        3,
        Partitioned(cancer, Deal(15, 30, 40, size_sigma=0.8), (PLAIN,)),
        model=logistic_model,
    ),
    Regime(
        "wine-gain",
        "an offset and a gain at a third of the sites",
        2,
        Partitioned(wine, Deal(12, 40, 30), (Population(2.0), Population(gain=-1.0, offset=0.5))),
        model=logistic_model,
        populations=2,
    ),
    Regime(
        "diabetes-units",
        "regression; half of the sites report the target with another sign",
        2,
        Partitioned(diabetes, Deal(16, 60, 40), (PLAIN, Population(target_gain=-1.0))),
        {"step_size": 0.02},
        model=linear_model,
        populations=2,
    ),
    Regime(
        "interactions",
        "groups differ in how two features act together: no linear probe sees it",
        2,
        interactions,
        {"step_size": 0.3, "rounds": 100},
        model=small_mlp,
        populations=2,
    ),
    Regime(
        "gaussian",
        "linear regression with a Gaussian likelihood: losses below zero",
        3,
        partial(_regressions, 3),
        {"step_size": 0.01},
        model=linear_model,
        loss=gaussian,
        populations=3,
    ),
    Regime(
        "gaussian-alone",
        "the same without populations, k = 4 asked",
        4,
        partial(_regressions, 1),
        {"step_size": 0.01},
        model=linear_model,
        loss=gaussian,
    ),
)
