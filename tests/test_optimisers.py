"""Optimisers of clients and of the server: torch's steps, and numbers that can be redone on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ifca import InvalidInput
from ifca.core.client import local_update
from ifca.core.optimisers import optimiser_of
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, Data, Params
from ifca.data import Federation
from ifca.engines.covered import not_fused
from ifca.engines.gram.fast import applies
from ifca.methods.averaging import initial_state
from ifca.methods.server_optimiser import forgotten, server_step
from ifca.models.task import make_task
from ifca.training import fit
from ifca.training.candidates import Candidate, Tuner
from ifca.training.checkpoint import load_state, save_state
from ifca.training.halving import attempt
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
    ("settings", "exact"),
    [
        ({}, True),
        ({"optimizer": "momentum"}, True),
        ({"proximal": 0.1}, True),
        ({"optimizer": "momentum", "batch_size": 3}, False),
        ({"optimizer": "adam"}, False),
        ({"weight_decay": 0.1}, False),
    ],
)
def test_which_steps_the_fast_paths_take(settings: dict[str, Any], exact: bool, unequal: Federation) -> None:
    job = make_job(unequal, Recipe(k=2, **settings))
    assert applies(job.task, job.recipe) == exact
    said = not_fused(job.task, job.recipe, unequal.train, torch.device("cuda"))
    assert ("momentum, proximal" in said) == bool(settings)


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


def served(settings: dict[str, Any], engine: EngineName = "loop", rounds: int = 2) -> list[float]:
    """Clients A (1, 2), B (1, -2), C (1, 4); models 1 and -1; one local step of 0.1 in a round.

    A and C have model 0, whose mean change is 0.2 (3 - theta_0); B has model 1: 0.2 (-2 - theta_1).
    """
    recipe = Recipe("ifca-plain", k=2, rounds=rounds, local_steps=1, step_size=0.1, **settings)
    job = scalar_job([(1.0, 2.0), (1.0, -2.0), (1.0, 4.0)], [1.0, -1.0], recipe)
    found: list[float] = fit(replace(job, engine=engine)).state.theta["fc1.weight"].flatten().tolist()
    return found


@pytest.mark.parametrize("engine", ENGINES)
class TestServerByHand:
    def test_a_step_of_half_the_change(self, engine: EngineName) -> None:
        # 1 -> 1.2 -> 1.2 + 0.5 x 0.36; -1 -> -1.1 -> -1.1 - 0.5 x 0.18
        assert served({"server_step_size": 0.5}, engine) == pytest.approx([1.38, -1.19])

    def test_momentum(self, engine: EngineName) -> None:
        # velocities 0.4, then 0.5 x 0.4 + 0.32; -0.2, then 0.5 x -0.2 - 0.16
        settings = {"server_optimizer": "momentum", "server_betas": (0.5, 0.5)}
        assert served(settings, engine) == pytest.approx([1.4 + 0.52, -1.2 - 0.26])

    def test_adam(self, engine: EngineName) -> None:
        # tau = 0.1, v begins at 0.01. Model 0: m = 0.2, v = 0.005 + 0.08 = 0.085
        settings = {"server_optimizer": "adam", "server_betas": (0.5, 0.5), "server_tau": 0.1}
        first = [1 + 0.2 * 0.2 / (0.085**0.5 + 0.1), -1 - 0.2 * 0.1 / (0.025**0.5 + 0.1)]
        settings["server_step_size"] = 0.2
        assert served(settings, engine, 1) == pytest.approx(first)
        change = 0.2 * (3 - first[0])
        m, v = 0.5 * 0.2 + 0.5 * change, 0.5 * 0.085 + 0.5 * change**2
        assert served(settings, engine)[0] == pytest.approx(first[0] + 0.2 * m / (v**0.5 + 0.1))

    def test_yogi(self, engine: EngineName) -> None:
        # v = 0.01 + 0.5 x 0.16 = 0.09: the square was larger, so it is added; then 0.09 > change^2 takes away
        settings = {"server_optimizer": "yogi", "server_betas": (0.5, 0.5), "server_tau": 0.1}
        settings["server_step_size"] = 2.5
        first = 1 + 2.5 * 0.2 / (0.3 + 0.1)
        assert served(settings, engine, 1)[0] == pytest.approx(first)
        change = 0.2 * (3 - first)
        m, v = 0.5 * 0.2 + 0.5 * change, 0.09 - 0.5 * change**2
        assert served(settings, engine)[0] == pytest.approx(first + 2.5 * m / (v**0.5 + 0.1))

    def test_option_one_moves_by_its_own_mean_change(self, engine: EngineName) -> None:
        # the step of the paper is 0.1/3 x (2 + 6) = 0.8/3; momentum keeps half of it for the next one
        settings = {"server_optimizer": "momentum", "server_betas": (0.5, 0.5), "option": "gradient"}
        first = 1 + 0.8 / 3
        second = 0.5 * 0.8 / 3 + 0.1 / 3 * (4 * (3 - first))
        assert served(settings, engine)[0] == pytest.approx(first + second)


def test_an_empty_cluster_keeps_its_model_and_what_its_optimiser_remembers() -> None:
    recipe = Recipe(server_optimizer="momentum")
    state = initial_state({"w": torch.tensor([[1.0], [2.0]])}, torch.zeros(2, dtype=torch.long))
    for weight, want in ((1.0, [[1.5], [2.5]]), (0.0, [[1.5 + 0.95], [2.5]]), (1.0, [[3.805], [3.45]])):
        averages = {"w": state.theta["w"] + 0.5}
        theta, moments = server_step(recipe, state, averages, torch.tensor([1.0, weight]), frozenset())
        torch.testing.assert_close(theta["w"], torch.tensor(want))
        state = replace(state, theta=theta, moments=moments)


def test_shared_layers_rest_in_a_round_of_nobody() -> None:
    """0 to 1 with momentum 1; then nobody is heard; then 1 to 1 + 0.9 + 1."""
    recipe, shared = Recipe(server_optimizer="momentum"), frozenset({"w"})
    state = initial_state({"w": torch.zeros(2, 1)}, torch.zeros(2, dtype=torch.long))
    for change, heard, want in ((1.0, 1.0, 1.0), (0.0, 0.0, 1.0), (1.0, 1.0, 2.9)):
        averages = {"w": state.theta["w"] + change}
        theta, moments = server_step(recipe, state, averages, torch.tensor([heard, 0.0]), shared)
        assert theta["w"].flatten().tolist() == pytest.approx([want, want])
        state = replace(state, theta=theta, moments=moments)


def test_a_place_with_a_new_model_begins_anew() -> None:
    """It was empty for a round, or its model became that of two groups; shared layers go on."""
    recipe = Recipe(server_optimizer="adam", server_step_size=1.0)
    theta = {"own": torch.ones(3, 1).double(), "shared": torch.ones(3, 1).double()}
    state = initial_state(theta, torch.zeros(1, dtype=torch.long))
    names, step = frozenset({"shared"}), {"own": torch.full((3, 1), 2.0), "shared": torch.full((3, 1), 2.0)}

    def moved(state: ClusterState) -> ClusterState:
        _, moments = server_step(recipe, state, step, torch.ones(3) * state.live, names)
        return replace(state, moments=moments)

    first = moved(state).moments
    assert first["first.own"].flatten().tolist() == pytest.approx([0.1] * 3)
    without = moved(replace(moved(state), live=torch.tensor([True, False, True])))
    again = moved(
        forgotten(replace(without, live=torch.ones(3, dtype=torch.bool)), torch.tensor([2]))
    ).moments
    assert again["first.own"].flatten().tolist() == pytest.approx([0.271, 0.1, 0.1])
    assert again["second.own"].flatten()[1:].tolist() == first["second.own"].flatten()[1:].tolist()
    assert again["first.shared"].flatten().tolist() == pytest.approx([0.271])


def test_a_checkpoint_holds_what_the_server_remembers(tmp_path: Path, unequal: Federation) -> None:
    """Also that of the state to go back to; and a run that goes on from it ends with the same bits."""
    recipe = Recipe("ifca", k=2, rounds=4, server_optimizer="yogi", on_divergence="halve", shared=("fc1",))
    job = make_job(unequal, recipe)
    states: list[ClusterState] = []
    whole = fit(job, on_round=lambda state, _record: states.append(state))
    save_state(tmp_path / "state", states[1], {})
    read = load_state(tmp_path / "state", torch.device("cpu"), lambda _header: None)
    assert read.progress.kept is not None
    assert states[1].progress.kept is not None
    for mine, other in ((read, states[1]), (read.progress.kept, states[1].progress.kept)):
        assert mine.moments.keys() == other.moments.keys() != set()
        assert all(torch.equal(value, other.moments[name]) for name, value in mine.moments.items())
    again = fit(job, resume=read).state.theta
    assert all(torch.equal(value, again[name]) for name, value in whole.state.theta.items())


def test_halving_halves_the_step_of_an_adaptive_server(unequal: Federation) -> None:
    """The change of a model after Adam does not follow the clients' step."""
    for name, want in (("adam", 0.0025), ("momentum", 1.0)):
        job = make_job(unequal, Recipe(server_optimizer=name, on_divergence="halve"))  # type: ignore[arg-type]
        recipe = attempt(job, 2).job.recipe
        assert (recipe.step_size, recipe.server_step) == (0.025, want)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"optimizer": "adagrad"}, "optimizer must be 'sgd', 'momentum', 'adam' or 'adamw'"),
        ({"optimizer": "adam", "option": "gradient"}, "with option gradient clients take none"),
        ({"proximal": 0.1, "option": "gradient"}, "with option gradient clients take none"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"weight_decay": -1.0}, "weight_decay must be zero or positive, got -1.0"),
        ({"proximal": float("nan")}, "proximal must be zero or positive, got nan"),
        ({"server_optimizer": "sgd"}, "server_optimizer must be 'none', 'momentum', 'adam' or 'yogi'"),
        ({"server_betas": [0.9, 1.0]}, r"server_betas must be two numbers in \[0, 1\), got \[0.9, 1.0\]"),
        ({"server_step_size": 0.0}, "server_step_size must be a positive number, got 0.0"),
        ({"server_tau": -1.0}, "server_tau must be a positive number, got -1.0"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Recipe(**settings)
