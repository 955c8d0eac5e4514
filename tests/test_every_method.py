"""Every method where others are rarely tried: hardly any clients, targets in other units, a user's names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Client, Federation
from ifca.methods.registry import BUILT_IN
from ifca.models import linear, logistic, mlp
from ifca.training import Job, fit
from tests.conftest import groups, make_job

FEW: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "one client": ((15,), {"k": 1}),
    "one sample each": ((1, 1, 1, 1), {}),
    "one participant": ((12, 7, 20, 4), {"participation": 0.2, "rounds": 6}),
    "replies lost": ((12, 7, 20), {"lost_replies": 0.6, "rounds": 6}),
}


@pytest.mark.parametrize("few", FEW)
@pytest.mark.parametrize("name", BUILT_IN)
def test_engines_agree_where_there_is_hardly_anybody(name: str, few: str) -> None:
    """In single precision, as users train: the loop and the vectorised engine, its fast path included."""
    sizes, settings = FEW[few]
    if name == "fedbn":
        settings = {**settings, "batch_norm": "client"}
    recipe = Recipe(**{"algorithm": name, "k": 2, "rounds": 3, "local_steps": 2, "erm_rounds": 2, **settings})
    job = make_job(groups(sizes), recipe, precision="float32")
    if name in ("giant", "mocha"):
        job = replace(job, model=lambda: logistic(6, 3))
    loop, fast = fit(replace(job, engine="loop")), fit(job)
    for key, value in loop.state.theta.items():
        assert bool(value.isfinite().all()), key
        torch.testing.assert_close(value, fast.state.theta[key], rtol=1e-3, atol=1e-4)
    assert loop.labels.tolist() == fast.labels.tolist()


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("name", BUILT_IN)
def test_training_that_ends_where_it_began_has_models_to_serve_with(name: str, early_stopping: bool) -> None:
    """A step so long that the only round is given up: what is kept are the first models."""
    settings: dict[str, Any] = {"batch_norm": "client"} if name == "fedbn" else {}
    recipe = Recipe(name, k=2, rounds=1, step_size=1e5, on_divergence="halve", erm_rounds=2, **settings)
    recipe = replace(recipe, early_stopping=early_stopping, erm_step_size=0.1)
    job = make_job(groups((12, 7, 20, 9)), recipe)
    if name in ("giant", "mocha"):
        job = replace(job, model=lambda: logistic(6, 3))
    fitted = fit(job)
    assert fitted.state.live.any()
    assert all(bool(value.isfinite().all()) for value in fitted.state.theta.values())
    assert bool(fitted.own_loss.isfinite().all())


REGRESSIONS = [name for name in BUILT_IN if name not in ("fedbn", "fedrc")]


@pytest.mark.parametrize("name", REGRESSIONS)
def test_units_of_targets_decide_nothing(name: str) -> None:
    """Standardised targets are the same numbers in metres and in units of 1/1024 of them."""

    def trained(unit: float) -> Job:
        rng = np.random.default_rng(0)
        laws, clients = rng.normal(size=(2, 4)), []
        for i, n in enumerate((12, 7, 20, 9)):
            x = rng.normal(size=(n, 4))
            clients.append(Client(x, unit * (x @ laws[i % 2] + 0.1 * rng.normal(size=n)), id=f"c{i}"))
        federation = Federation.from_clients(clients).with_scaled_targets()
        recipe = Recipe(algorithm=name, k=2, rounds=3, local_steps=2, erm_rounds=2, seed=1)
        plain = name in ("giant", "mocha")
        return Job(federation, recipe, lambda: linear(4) if plain else mlp(4, 1, (5,)), precision="float64")

    metres, parts = fit(trained(1.0)), fit(trained(1024.0))
    assert metres.labels.tolist() == parts.labels.tolist()
    for key, value in metres.state.theta.items():
        torch.testing.assert_close(value, parts.state.theta[key], rtol=1e-10, atol=1e-12)


class Named(nn.Module):
    """Logistic regression whose layer and parameters have the names of what methods keep beside a model."""

    def __init__(self, common: str, share: str, pi: str) -> None:
        super().__init__()
        self.names = common, share, pi
        self.add_module(common, nn.Linear(6, 3))
        self.register_parameter(share, nn.Parameter(torch.ones(3)))
        self.register_parameter(pi, nn.Parameter(torch.zeros(3)))

    def forward(self, x: Tensor) -> Tensor:
        layer, share, pi = (getattr(self, name) for name in self.names)
        said: Tensor = layer(x) * share + pi
        return said


@pytest.mark.parametrize("name", ["per-fedavg", "ditto", "apfl", "mapper", "fedem", "fedrc"])
def test_names_of_layers_decide_nothing(name: str, unequal: Federation) -> None:
    recipe = Recipe(algorithm=name, k=2, rounds=2, local_steps=2)

    def trained(*names: str) -> list[Tensor]:
        job = Job(unequal, recipe, lambda: Named(*names), precision="float64")
        return list(fit(job).state.theta.values())

    for mine, other in zip(trained("common", "share", "pi"), trained("a", "b", "c"), strict=True):
        assert torch.equal(mine, other)


def test_fedrc_names_a_model_whose_last_layer_is_not_its_last(unequal: Federation) -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.below = nn.Linear(2, 3), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            said: Tensor = self.head(self.below(x))
            return said

    job = Job(unequal, Recipe(algorithm="fedrc", rounds=1), Head)
    with pytest.raises(InvalidInput, match="fedrc: the model's last layer has 2 rows, but the model tells 3"):
        fit(job)
