"""Random crops and flips: drawn per sample, the same on every engine, never for an identity."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.sampling import make_plan
from ifca.data import Federation
from ifca.engines.loop import LoopEngine
from ifca.engines.vectorised import VectorisedEngine
from ifca.models.augment import crop_and_flip
from ifca.models.networks import CentreCrop
from ifca.training import Job, fit
from ifca.training.start import start
from tests.test_contract import assert_same

WAYS: dict[str, dict[str, Any]] = {
    "whole": {},
    "steps": {"batch_size": 3},
    "epochs": {"local_epochs": 3, "batch_size": 3},
    "gradient": {"option": "gradient"},
    "stochastic gradient": {"option": "gradient", "batch_size": 3},
    "resample": {"resample": True, "rounds": 2},
    "local": {"algorithm": "local", "local_epochs": 2, "batch_size": 4},
    "oneshot": {"algorithm": "oneshot", "batch_size": 4, "erm_rounds": 2},
}
KEYS = np.array([11, 22, 33], np.uint64)


def network() -> nn.Module:
    parts = OrderedDict(crop=CentreCrop(4), flatten=nn.Flatten(), fc1=nn.Linear(32, 5), relu=nn.ReLU())
    return nn.Sequential(OrderedDict(**parts, fc2=nn.Linear(5, 3)))


def job_of(way: str, **more: Any) -> Job:
    rng = np.random.default_rng(0)
    sizes = (12, 7, 20, 4, 9)
    x = [rng.integers(0, 256, (n, 2, 7, 6), dtype=np.uint8) for n in sizes]
    y = [rng.integers(0, 3, n) for n in sizes]
    federation = Federation.from_arrays(x, y, x, y, classes=3)
    recipe = Recipe(
        **{
            "algorithm": "ifca-plain",
            "k": 2,
            "rounds": 3,
            "local_steps": 3,
            "augment": True,
            **WAYS[way],
            **more,
        }
    )
    return Job(federation, recipe, network, precision="float64")


def test_a_draw_decides_place_and_mirror() -> None:
    image = torch.arange(12.0).reshape(1, 1, 3, 4)  # 2 places down, 3 across for crops of 2
    draws = torch.tensor([0, 1, 2, 5, 6, 11, 12 + 7])
    crops = crop_and_flip(2)(image.expand(7, 1, 3, 4), draws)[:, 0].tolist()
    assert crops == [
        [[0, 1], [4, 5]],
        [[4, 5], [8, 9]],
        [[1, 2], [5, 6]],
        [[6, 7], [10, 11]],
        [[1, 0], [5, 4]],
        [[7, 6], [11, 10]],
        [[5, 4], [9, 8]],
    ]


def test_places_and_mirrors_are_even() -> None:
    draws = make_plan(Recipe(augment=True), 0, KEYS, np.array([3000] * 3)).draws
    assert draws is not None
    counts = torch.bincount(draws.flatten() % (9 * 9 * 2), minlength=162)
    assert counts.min() > 0.75 * counts.float().mean()
    assert counts.max() < 1.25 * counts.float().mean()


@pytest.mark.parametrize("way", WAYS)
def test_engines_agree(way: str) -> None:
    job = job_of(way)
    oracle = fit(replace(job, engine="loop"))
    assert_same(oracle, fit(job))
    plain = fit(replace(job, recipe=replace(job.recipe, augment=False)))
    assert not torch.equal(oracle.state.theta["fc1.weight"], plain.state.theta["fc1.weight"])


@pytest.mark.parametrize("way", ["whole", "steps", "epochs", "resample"])
def test_every_chunk_size_gives_the_same(way: str) -> None:
    job = job_of(way)
    theta, who = start(job).theta, torch.arange(5)
    known = torch.full_like(who, -1)
    expected = LoopEngine(job.task, job.recipe, job.federation.train).train(theta, who, known, 1)
    for chunk in range(1, 6):
        engine = VectorisedEngine(job.task, job.recipe, job.federation.train, chunk=chunk)
        for name, value in engine.train(theta, who, known, 1).total.total.items():
            torch.testing.assert_close(value, expected.total.total[name])


@pytest.mark.parametrize("way", ["whole", "epochs", "resample"])
@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_identity_is_estimated_on_clean_data(way: str, engine: str) -> None:
    job = replace(job_of(way), engine=engine)  # type: ignore[arg-type]
    plain = replace(job, recipe=replace(job.recipe, augment=False))
    theta, who = start(job).theta, torch.arange(5)
    known = torch.full_like(who, -1)
    needs = Needs(losses=True)
    a, b = (one.make_engine().train(theta, who, known, 0, needs) for one in (job, plain))
    assert a.losses is not None
    assert b.losses is not None
    assert torch.equal(a.losses, b.losses)
    for name, value in a.total.total.items():
        assert not torch.equal(value, b.total.total[name])
    scores = [one.make_engine().score(theta, job.federation.train).loss for one in (job, plain)]
    assert torch.equal(*scores)


def test_draws_depend_on_seed_round_client_pass_and_sample_only() -> None:
    recipe, sizes = Recipe(augment=True, local_epochs=2, batch_size=4), np.array([5, 9, 6])

    def by_sample(recipe: Recipe, t: int, places: list[int]) -> dict[tuple[int, int, int], int]:
        """(client, epoch, row) -> draw."""
        plan = make_plan(recipe, t, KEYS[places], sizes[places])
        assert plan.steps is not None
        assert plan.draws is not None
        found: dict[tuple[int, int, int], int] = {}
        for client, rows, draws in zip(places, plan.steps.tolist(), plan.draws.tolist(), strict=True):
            for step, (row, draw) in enumerate(zip(rows, draws, strict=True)):
                epoch = step * 2 // len(rows)
                found |= {(client, epoch, r): d for r, d in zip(row, draw, strict=True) if r >= 0}
        return found

    together = by_sample(recipe, 0, [0, 1, 2])
    assert len(set(together.values())) == len(together) == 2 * (5 + 9 + 6)
    alone = {key: draw for i in range(3) for key, draw in by_sample(recipe, 0, [i]).items()}
    assert alone == together
    assert not set(together.values()) & set(by_sample(recipe, 1, [0, 1, 2]).values())
    assert not set(together.values()) & set(by_sample(replace(recipe, seed=1), 0, [0, 1, 2]).values())


def test_models_that_do_not_crop_are_refused() -> None:
    job = replace(job_of("steps"), model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(84, 3)))
    with pytest.raises(InvalidInput, match=r"augment: needs a model that crops its images"):
        fit(job)
    with pytest.raises(InvalidInput, match=r"augment: needs images .* of 4 or more, got \(2, 3, 9\)"):
        crop_and_flip(4)(torch.zeros(1, 2, 3, 9), torch.zeros(1, dtype=torch.long))
