"""GIANT: Newton steps inside clusters, with numbers that can be redone on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ifca import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Client, Federation
from ifca.methods.giant import TRIED, longest
from ifca.models import linear, logistic
from ifca.training import Fitted, Job, fit
from ifca.training.job import EngineName
from ifca.training.preflight import check
from tests.conftest import groups, make_job, scalar_job

ENGINES: list[EngineName] = ["loop", "vectorised"]


def models(fitted: Fitted) -> list[float]:
    found: list[float] = fitted.state.theta["fc1.weight"].flatten().tolist()
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("copies", "want"), [(2, [2.5625, -2.0]), (1, [1.78125, -1.5])])
def test_a_round_by_hand(copies: int, want: list[float], engine: EngineName) -> None:
    """y = theta x, squared loss. A (1, 2) and C (2, 4) choose model 0 = 1, B (1, -2) model 1 = -1.

    Gradients 2 x (theta x - y): A -2, C -8, mean -5. Curvatures 2 x^2: A 2, C 8, so p = -2.5 and -0.625,
    mean -1.5625. The whole step takes the mean loss from 2.5 to 0.79. B alone is Newton's method: -2.
    With one sample for one feature, clients double their curvatures: half of these steps.
    """
    recipe = Recipe("giant", k=2, rounds=1, local_steps=1)
    points = [(1.0, 2.0), (1.0, -2.0), (2.0, 4.0)]
    clients = [Client(np.full((copies, 1), x), np.full(copies, y)) for x, y in points]
    job = replace(scalar_job(points, [1.0, -1.0], recipe), federation=Federation.from_clients(clients))
    fitted = fit(replace(job, engine=engine))
    assert models(fitted) == pytest.approx(want)
    # a model has 8 bytes; down: both models, g, p; up: gradient, cluster, two losses; p; eleven numbers
    assert fitted.state.bytes_down.tolist() == [2 * 8 + 8 + 8] * 3
    assert fitted.state.bytes_up.tolist() == [8 + 4 + 2 * 4 + 8 + 11 * 8] * 3


def test_the_longest_step_that_gains_enough() -> None:
    """From 1, a slope of 10: eta 1 must reach 0.9, 1/2 0.95; where nothing does the model stays."""
    values = torch.full((4, len(TRIED)), 2.0).double()
    values[:, 0] = 1
    values[0, 1] = 0.9
    values[1, 1:3] = torch.tensor([0.91, 0.95])
    values[2, 1:] = torch.nan
    assert longest(values, torch.full((4,), 10.0).double()).tolist() == [1.0, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_one_client_alone_solves_a_regression_in_a_round(l2: float) -> None:
    """Newton's method: the ridge regression (2 X'X/n + l2) theta = 2 X'y/n."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5)), rng.normal(size=40)
    recipe = Recipe("giant", k=1, rounds=1, local_steps=5, l2=l2)
    job = Job(Federation.from_clients([Client(x, y)]), recipe, lambda: linear(5), precision="float64")
    exact = np.linalg.solve(2 * x.T @ x / 40 + l2 * np.eye(5), 2 * x.T @ y / 40)
    np.testing.assert_allclose(models(fit(job)), exact, rtol=1e-8)


def test_clusters_are_found_and_solved() -> None:
    """Logistic clusters: ten rounds bring the gradient of each cluster's objective to nothing."""
    federation = groups((60, 50, 70, 40, 55, 65))
    recipe = Recipe("giant", k=2, rounds=15, l2=0.1, local_steps=21, initial="oneshot")
    fitted = fit(Job(federation, recipe, lambda: logistic(6, 3), precision="float64"))
    assert len({tuple(fitted.labels[i::2].tolist()) for i in range(2)}) == 2
    before, last = fitted.history[-2]["train_loss"], fitted.history[-1]["train_loss"]
    assert abs(before - last) < 1e-8
    slow = Recipe("ifca-plain", k=2, rounds=15, l2=0.1, local_steps=10, step_size=0.1, initial="oneshot")
    assert last < fit(replace(fitted.job, recipe=slow)).history[-1]["train_loss"]


def test_a_client_with_fewer_samples_than_features_takes_shorter_steps() -> None:
    rng = np.random.default_rng(1)
    star, clients = rng.normal(size=12), []
    for n in (5, 40, 3, 30, 8, 50):
        x = rng.normal(size=(n, 12))
        clients.append(Client(x, x @ star))
    job = Job(Federation.from_clients(clients), Recipe("giant", k=1, rounds=12, local_steps=12), linear_12)
    for precision in ("float32", "float64"):
        losses = [record["train_loss"] for record in fit(replace(job, precision=precision)).history]
        assert np.isfinite(losses).all()
        assert losses[-1] < 0.01 * losses[0]


def test_the_docs_have_the_table_of_the_results() -> None:
    top = Path(__file__).parent.parent
    made = (top / "results" / "second-order" / "table.md").read_text()
    assert made in (top / "docs" / "methods.md").read_text()


def linear_12() -> torch.nn.Module:
    return linear(12)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batch_size": 3}, "giant takes a client's whole data"),
        ({"resample": True, "rounds": 2}, "giant takes a client's whole data"),
        ({"shared": ("fc1.bias",)}, "giant takes a client's whole data"),
    ],
)
def test_what_it_cannot_do_is_said(settings: dict[str, Any], said: str, unequal: Federation) -> None:
    job = make_job(unequal, Recipe("giant", k=2, **settings))
    for refused in (check, fit):
        with pytest.raises(InvalidInput, match=said):
            refused(job)
    with pytest.raises(InvalidInput, match='giant is for convex models: use model = "linear" or "logistic"'):
        check(replace(make_job(unequal, Recipe(k=2)), recipe=Recipe("giant", k=2)))
