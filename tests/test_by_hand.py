"""Both options with scalar models y = theta x and squared loss: every number can be redone on paper.

Clients A (1, 2), B (1, -2), C (1, 4); models theta_0 = 1, theta_1 = -1.
Losses: A (1, 9), B (9, 1), C (9, 25), so A and C choose model 0, B chooses model 1.
Gradients 2 x (theta x - y): A -2, B 2, C -6.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ifca.core.recipe import Recipe
from ifca.data import Client, Federation
from ifca.models import linear
from ifca.training import Fitted, Job, fit
from ifca.training.job import EngineName
from tests.conftest import scalar_job

CLIENTS = [(1.0, 2.0), (1.0, -2.0), (1.0, 4.0)]
ENGINES: list[EngineName] = ["loop", "vectorised"]


def trained(recipe: Recipe, engine: EngineName, theta: list[float] | None = None) -> Fitted:
    job = scalar_job(CLIENTS, theta or [1.0, -1.0], recipe)
    return fit(replace(job, engine=engine))


def models(fitted: Fitted) -> list[float]:
    values: list[float] = fitted.state.theta["fc1.weight"].flatten().tolist()
    return values


@pytest.mark.parametrize("engine", ENGINES)
class TestOptions:
    def test_gradient_averaging_divides_by_all_participants(self, engine: EngineName) -> None:
        fitted = trained(
            Recipe(algorithm="ifca-plain", k=2, rounds=1, option="gradient", step_size=0.1), engine
        )
        # theta_0 = 1 - 0.1/3 (-2 - 6), theta_1 = -1 - 0.1/3 (2)
        assert models(fitted) == pytest.approx([1 + 0.8 / 3, -1 - 0.2 / 3])
        assert fitted.labels.tolist() == [0, 1, 0]

    def test_model_averaging_with_one_local_step(self, engine: EngineName) -> None:
        fitted = trained(Recipe(algorithm="ifca-plain", k=2, rounds=1, local_steps=1, step_size=0.1), engine)
        # A: 1.2, C: 1.6, mean 1.4; B: -1.2
        assert models(fitted) == pytest.approx([1.4, -1.2])

    def test_model_averaging_with_two_local_steps(self, engine: EngineName) -> None:
        fitted = trained(Recipe(algorithm="ifca-plain", k=2, rounds=1, local_steps=2, step_size=0.1), engine)
        # A: 1.2 -> 1.36, C: 1.6 -> 2.08, mean 1.72; B: -1.2 -> -1.36
        assert models(fitted) == pytest.approx([1.72, -1.36])

    def test_two_rounds_with_step_decay(self, engine: EngineName) -> None:
        recipe = Recipe(algorithm="ifca-plain", k=2, rounds=2, local_steps=1, step_size=0.1, step_decay=0.5)
        # round 1 from 1.4, -1.2 with step 0.05: A 1.4 + 0.06, C 1.4 + 0.26, mean 1.56; B -1.2 - 0.08
        assert models(trained(recipe, engine)) == pytest.approx([1.56, -1.28])

    def test_empty_cluster_keeps_its_model(self, engine: EngineName) -> None:
        for option in ("model", "gradient"):
            recipe = Recipe(algorithm="ifca-plain", k=3, rounds=1, local_steps=1, option=option)
            assert models(trained(recipe, engine, [1.0, -1.0, 50.0]))[2] == 50.0

    def test_ties_go_to_the_lowest_index(self, engine: EngineName) -> None:
        fitted = trained(Recipe(algorithm="ifca-plain", k=2, rounds=1, local_steps=1), engine, [1.0, -1.0])
        assert fitted.history[0]["identity"] == [0, 1, 0]
        mirrored = scalar_job(
            [(1.0, 0.0)] * 2, [2.0, -2.0], Recipe(algorithm="ifca-plain", k=2, rounds=1, local_steps=1)
        )
        assert fit(mirrored).history[0]["identity"] == [0, 0]

    def test_regulariser_pulls_the_update_but_not_the_identity(self, engine: EngineName) -> None:
        fitted = trained(Recipe(algorithm="ifca-plain", k=2, rounds=1, local_steps=1, l2=1.0), engine)
        # the gradient gains l2 theta: A 1 - 0.1 (-2 + 1), C 1 - 0.1 (-6 + 1), mean 1.3; B -1 - 0.1 (2 - 1)
        assert models(fitted) == pytest.approx([1.3, -1.1])
        assert fitted.history[0]["train_loss"] == pytest.approx((1 + 1 + 9) / 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_weighted_average_counts_samples(engine: EngineName) -> None:
    # A has one sample, C three equal ones: mean (1.2 + 3 x 1.6) / 4 = 1.5
    clients = [
        Client(np.ones((1, 1)), np.array([2.0])),
        Client(np.ones((3, 1)), np.array([4.0, 4.0, 4.0])),
    ]
    job = Job(
        Federation.from_clients(clients),
        Recipe(k=1, rounds=1, local_steps=1, weighted=True),
        lambda: linear(1),
        engine=engine,
        warm_start={"fc1.weight": torch.ones(1, 1, 1)},
    )
    assert models(fit(job)) == pytest.approx([1.5])
    plain = replace(job, recipe=Recipe(k=1, rounds=1, local_steps=1))
    assert models(fit(plain)) == pytest.approx([1.4])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("option", ["model", "gradient"])
def test_shared_layer_takes_everybody(engine: EngineName, option: str) -> None:
    """y = a (shared) + theta x: the bias a is averaged over all three clients, theta per cluster.

    With a = 0 the identities are as above; the bias has the gradient 2 (theta x + a - y): A -2, B 2, C -6.
    """
    clients = [Client(np.array([[x]]), np.array([y])) for x, y in CLIENTS]
    start = {"fc1.weight": torch.tensor([[[1.0]], [[-1.0]]]), "fc1.bias": torch.zeros(2, 1)}
    recipe = Recipe(algorithm="ifca-plain", k=2, rounds=1, local_steps=1, option=option, shared=("fc1.bias",))  # type: ignore[arg-type]
    job = Job(
        Federation.from_clients(clients),
        recipe,
        lambda: linear(1, bias=True),
        engine=engine,
        warm_start=start,
    )
    theta = fit(job).state.theta
    # both options: 0 - 0.1/3 (-2 + 2 - 6) = 0.2, equal in both clusters
    assert theta["fc1.bias"].flatten().tolist() == pytest.approx([0.2, 0.2])
    expected = [1.4, -1.2] if option == "model" else [1 + 0.8 / 3, -1 - 0.2 / 3]
    assert theta["fc1.weight"].flatten().tolist() == pytest.approx(expected)
