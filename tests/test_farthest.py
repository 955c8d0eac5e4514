"""The farthest-client start with scalar models: numbers that can be redone on paper.

Clients (1, y), y = 50, 60, -50, 10, from a theta near 0: a step of 0.1 takes them to 0.8 theta + 0.2 y, about
10, 12, -10, 2. Lowest losses (y - theta)^2, about, and so the client that is next:
from 10: -, 2500, 3600, 0: client 2; then -, 2500, -, 0: client 1.
from 12: 1444, -, 3844, 4: client 2; then 1444, -, -, 4: client 0.
from -10: 3600, 4900, -, 400: client 1; then 1444, -, -, 4: client 0.
from 2: 2304, 3364, 2704, -: client 1; then 1444, -, 2704, -: client 2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ifca.core.errors import InvalidInput
from ifca.core.random import bits
from ifca.core.recipe import Recipe
from ifca.data import Client, Federation
from ifca.models import linear
from ifca.training import Job, fit
from ifca.training.start import start
from tests.conftest import groups, make_job

Y = [50.0, 60.0, -50.0, 10.0]
CHOSEN = {0: [0, 2, 1], 1: [1, 2, 0], 2: [2, 1, 0], 3: [3, 1, 2]}


def scalar(seed: int, **options: object) -> Job:
    clients = [Client(np.array([[1.0]]), np.array([y]), id=str(y)) for y in Y]
    recipe = Recipe("ifca-plain", k=3, rounds=1, local_steps=1, initial="farthest", seed=seed)
    recipe = replace(recipe, **options)  # type: ignore[arg-type]
    return Job(Federation.from_clients(clients), recipe, lambda: linear(1), precision="float64")


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
@pytest.mark.parametrize("option", ["model", "gradient"])
def test_by_hand(engine: str, option: str) -> None:
    seen = set()
    for seed in range(8):
        job = replace(scalar(seed, option=option), engine=engine)  # type: ignore[arg-type]
        theta = float(start(job).theta["fc1.weight"][0])
        first = int(bits(seed, "farthest", job.federation.train.keys).argmin())
        fitted = fit(job)
        expected = [0.8 * theta + 0.2 * Y[i] for i in CHOSEN[first]]
        assert fitted.state.theta["fc1.weight"].flatten().tolist() == pytest.approx(expected)
        seen.add(first)
        # 8 bytes a model: one start, then one and two models down; a model and two lowest losses up
        assert fitted.history[0]["bytes_down"] == 4 * 8 * (1 + 1 + 2)
        assert fitted.history[0]["bytes_up"] == 4 * (8 + 2 * 4)
    assert len(seen) > 1


def test_after_it_clients_choose() -> None:
    """Six clients of three kinds: the three models are of one kind each, and everybody finds its own."""
    federation = groups((60, 40, 90, 50, 70, 45), clusters=3, seed=3)
    recipe = Recipe("ifca-plain", k=3, rounds=8, step_size=0.3, initial="farthest", weighted=True)
    fitted = fit(make_job(federation, recipe))
    assert [record["sent_all_models"] for record in fitted.history] == [0] + [6] * 7
    assert fitted.history[-1]["cluster_accuracy"] == 1.0
    given = {name: value.clone() for name, value in fitted.state.theta.items()}
    warm = fit(make_job(federation, replace(recipe, rounds=1), warm_start=given))
    assert warm.history[0]["sent_all_models"] == 6  # nothing is left to find
    assert torch.equal(warm.labels, fitted.labels)


def test_too_few_clients_in_the_first_round() -> None:
    with pytest.raises(InvalidInput, match=r'initial = "farthest" takes 3 models .* there are only 2'):
        fit(scalar(0, participation=0.5))
