"""Optimisers of clients and of the server: torch's steps, and numbers that can be redone on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ifca import InvalidInput
from ifca.core.client import local_update
from ifca.core.optimisers import optimiser_of
from ifca.core.recipe import Recipe
from ifca.core.types import Data, Params
from ifca.data import Federation
from ifca.engines.cuda import fused
from ifca.engines.gram.fast import applies
from ifca.models.task import make_task
from ifca.training import fit
from ifca.training.candidates import Candidate, Tuner
from ifca.training.job import EngineName
from ifca.training.personalise import personalise
from tests.conftest import make_job, scalar_job

ENGINES: list[EngineName] = ["loop", "vectorised"]
TORCH: dict[str, tuple[dict[str, Any], Any]] = {
    "sgd": ({"weight_decay": 0.1}, lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.1)),
    "momentum": (
        {"weight_decay": 0.1, "momentum": 0.8},
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.8, weight_decay=0.1),
    ),
    "adam": ({"weight_decay": 0.1}, lambda p: torch.optim.Adam(p, 0.05, weight_decay=0.1)),
    "adamw": ({"weight_decay": 0.1}, lambda p: torch.optim.AdamW(p, 0.05, weight_decay=0.1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", TORCH)
def test_steps_are_those_of_torch(name: str, dtype: torch.dtype) -> None:
    """After each of six steps on other batches; the proximal term as part of the loss."""
    torch.manual_seed(0)
    settings, make = TORCH[name]
    recipe = Recipe(optimizer=name, proximal=0.3, **settings)  # type: ignore[arg-type]
    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).to(dtype)
    task = make_task(module, recipe, regression=False, device=torch.device("cpu"))
    sent = {key: value.detach().clone() for key, value in module.named_parameters()}
    batches = [
        Data(torch.randn(8, 4, dtype=dtype), torch.randint(3, (8,)), torch.ones(8, dtype=dtype))
        for _ in range(6)
    ]
    optimiser = make(module.parameters())
    for count, batch in enumerate(batches, 1):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(batch.x), batch.y)
        pull = sum(((value - sent[key]) ** 2).sum() for key, value in module.named_parameters())
        (loss + 0.15 * pull).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        ours = local_update(task, sent, 0.05, batches[:count], optimiser_of(recipe))
        for key, value in module.named_parameters():
            close = 1e-5 if dtype == torch.float32 else 1e-12
            torch.testing.assert_close(ours[key], value.detach(), rtol=close, atol=close)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("settings", "theta"),
    [
        # y = theta x at (1, 2) from theta = 1: gradient 2 (theta - 2), gamma = 0.1
        ({"optimizer": "momentum", "momentum": 0.5}, 1.2 + 0.1 * (1.6 + 0.5 * 2)),  # 1 -> 1.2 -> 1.46
        ({"weight_decay": 1.0}, 1.1 - 0.1 * (-1.8 + 1.1)),  # 1 -> 1.1 -> 1.17
        ({"proximal": 1.0}, 1.2 - 0.1 * (-1.6 + 0.2)),  # 1 -> 1.2 -> 1.34
        # means of gradients 0.2, 0.36, of squares 0.004, 0.007236, each undone
        ({"optimizer": "adam"}, 1.1 + 0.1 * (0.36 / 0.19) / (0.007236 / 0.001999) ** 0.5),
    ],
)
def test_two_steps_by_hand(engine: EngineName, settings: dict[str, Any], theta: float) -> None:
    recipe = Recipe("global", rounds=1, local_steps=2, step_size=0.1, **settings)
    job = replace(scalar_job([(1.0, 2.0)], [1.0], recipe), engine=engine)
    assert float(fit(job).state.theta["fc1.weight"]) == pytest.approx(theta, rel=1e-6)
    # what was remembered is made anew: the second round begins as the first did
    second = replace(scalar_job([(1.0, 2.0)], [theta], recipe), engine=engine)
    twice = fit(replace(job, recipe=replace(recipe, rounds=2)))
    assert float(twice.state.theta["fc1.weight"]) == pytest.approx(
        float(fit(second).state.theta["fc1.weight"])
    )


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw"])
def test_a_batch_without_samples_is_no_step(name: str) -> None:
    """Clients of few samples have fewer batches than others beside whom they are mapped."""
    recipe = Recipe(optimizer=name, weight_decay=0.1, proximal=0.1)  # type: ignore[arg-type]
    task = make_task(torch.nn.Linear(2, 1), recipe, regression=True, device=torch.device("cpu"))
    theta: Params = {"weight": torch.ones(1, 2), "bias": torch.ones(1)}
    batch = Data(torch.ones(3, 2), torch.zeros(3), torch.ones(3))
    empty = batch._replace(weight=torch.zeros(3))
    how = optimiser_of(recipe)
    short = local_update(task, theta, 0.1, [batch, batch], how)
    long = local_update(task, theta, 0.1, [batch, empty, batch, empty], how)
    assert all(torch.equal(value, long[key]) for key, value in short.items())


@pytest.mark.parametrize(
    "settings", [{"optimizer": "momentum"}, {"optimizer": "adam"}, {"weight_decay": 0.1}, {"proximal": 0.1}]
)
def test_fast_paths_leave_other_steps_alone(settings: dict[str, Any], unequal: Federation) -> None:
    plain = make_job(unequal, Recipe(k=2))
    other = replace(plain, recipe=Recipe(k=2, **settings))
    assert applies(plain.task, plain.recipe)
    assert not applies(other.task, other.recipe)
    assert not fused.applies(other.task, other.recipe, unequal.train, torch.device("cuda"))


@pytest.mark.parametrize("mapped", [True, False])
def test_personalising_takes_the_same_steps(mapped: bool, unequal: Federation) -> None:
    recipe = Recipe("global", rounds=1, optimizer="momentum", momentum=0.5, proximal=1.0, step_size=0.1)
    job = scalar_job([(1.0, 2.0)], [1.0], recipe)
    common = {"fc1.weight": torch.zeros(1, 1, dtype=torch.float64)}
    tuner = Tuner(job.task, 0.1, common, 0, mapped, optimiser_of(recipe))
    data = Data(*(torch.tensor(part, dtype=torch.float64) for part in ([[[1.0]]], [[2.0]], [[1.0]])))
    served = {"fc1.weight": torch.ones(1, 1, 1, dtype=torch.float64)}
    # from 1: 1.2, then velocity 0.5 x -2 - 1.6 + 0.2 = -2.4; alone there is nothing to stay near: from 0
    made = [tuner.made([Candidate(kind, 2)], served, data) for kind in ("tuned", "local")]
    assert [float(one["fc1.weight"]) for one in made] == pytest.approx([1.44, 0.4 + 0.1 * (3.2 + 2)])
    whole = make_job(unequal, Recipe("global", rounds=2, optimizer="adam", step_size=0.01))
    one, other = (personalise(fit(replace(whole, engine=engine))).after for engine in ENGINES)
    np.testing.assert_allclose(one, other)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"optimizer": "adagrad"}, "optimizer must be 'sgd', 'momentum', 'adam' or 'adamw'"),
        ({"optimizer": "adam", "option": "gradient"}, "with option gradient clients take none"),
        ({"proximal": 0.1, "option": "gradient"}, "with option gradient clients take none"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"weight_decay": -1.0}, "weight_decay must be zero or positive, got -1.0"),
        ({"proximal": float("nan")}, "proximal must be zero or positive, got nan"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Recipe(**settings)
