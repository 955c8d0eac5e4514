"""Replies that never come: who is lost, that nothing of theirs is used, and that engines agree about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ifca.core.errors import InvalidInput
from ifca.core.random import bits
from ifca.core.recipe import Recipe
from ifca.core.sampling import is_lost
from ifca.core.types import ClusterState
from ifca.data import Federation
from ifca.methods.registry import BUILT_IN
from ifca.training import Job, fit
from ifca.training.start import start
from tests.conftest import groups, make_job
from tests.test_contract import assert_same, recipe_of, same_bits

LOST = 0.4
ROWS = ["ifca", "plain-gradient", "plain-epochs", "plain-shared", "plain-stable-shared", "plain-median"]
METHOD_ROWS = ["global", "local", "clove", "cfl", "fedgroup", "sr-fca", "stocfl", "oneshot", "clove-auto"]


def losing(name: str, federation: Federation, **options: object) -> Job:
    recipe = replace(recipe_of(name), lost_replies=LOST, seed=7)
    return make_job(federation, recipe, **options)


@pytest.mark.parametrize("name", [*ROWS, *METHOD_ROWS])
def test_engines_agree_and_going_on_changes_no_bit(name: str, unequal: Federation) -> None:
    states: list[ClusterState] = []
    oracle = fit(losing(name, unequal, engine="loop"))
    job = losing(name, unequal)
    found = fit(job, on_round=lambda state, _record: states.append(state))
    assert_same(oracle, found)
    for state in states[:-1]:
        assert same_bits(fit(job, resume=state).state.theta, found.state.theta)


def test_a_round_is_that_of_the_clients_who_are_heard(unequal: Federation) -> None:
    """The same round, asked of those alone whose reply comes."""
    job = losing("plain", unequal)
    theta, who = start(job).theta, torch.arange(len(unequal.train))
    known = torch.full_like(who, -1)
    heard = ~torch.from_numpy(is_lost(job.recipe, 0, unequal.train.keys))
    assert 0 < int(heard.sum()) < len(who)
    replies = job.make_engine().train(theta, who, known, 0)
    plain = replace(job, recipe=replace(job.recipe, lost_replies=0.0)).make_engine()
    expected = plain.train(theta, who[heard], known[heard], 0)
    assert replies.answered is not None
    assert replies.answered.tolist() == heard.tolist()
    assert replies.identity.tolist() == expected.identity.tolist()
    assert same_bits(replies.total.total, expected.total.total)


def test_the_share_that_is_lost_is_the_probability_and_somebody_is_always_heard() -> None:
    keys = bits(0, "keys", np.arange(100_000, dtype=np.uint64))
    for t in range(3):
        lost = is_lost(Recipe(lost_replies=0.3), t, keys)
        assert abs(lost.mean() - 0.3) < 0.01  # its standard error is 0.0014
    assert is_lost(Recipe(lost_replies=0.999999), 0, keys[:5]).sum() == 4


def test_who_is_lost_does_not_depend_on_who_is_asked(unequal: Federation) -> None:
    recipe, keys = Recipe(lost_replies=0.4, seed=1), groups((3,) * 40).train.keys
    whole, part = is_lost(recipe, 2, keys), np.arange(0, 40, 3)
    assert whole[part].tolist() == is_lost(recipe, 2, keys[part]).tolist()


def test_the_default_finds_the_groups_with_a_third_of_the_replies_lost() -> None:
    federation = groups((100,) * 20)
    recipe = Recipe(algorithm="ifca", k=3, rounds=20, lost_replies=0.3, step_size=0.3)
    fitted = fit(make_job(federation, recipe))
    found, true = fitted.labels.numpy(), federation.train.true_cluster
    assert true is not None
    pairs = {(int(a), int(b)) for a, b in zip(found, true, strict=True)}
    assert len(pairs) == 2


def test_every_method_of_the_library_bears_lost_replies(unequal: Federation) -> None:
    """That it ends, with numbers."""
    for name in BUILT_IN:
        if name in ("giant", "mocha", "fedbn"):  # of other models than this network
            continue
        recipe = Recipe(algorithm=name, k=2, rounds=4, local_steps=2, lost_replies=LOST, seed=5)
        fitted = fit(make_job(unequal, recipe))
        assert all(bool(value.isfinite().all()) for value in fitted.state.theta.values()), name


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(InvalidInput, match="lost_replies must be in"):
        Recipe(lost_replies=share)


def test_a_real_federation_loses_its_own(unequal: Federation) -> None:
    job = losing("plain", unequal, engine="flower", remote=lambda job: job)
    with pytest.raises(InvalidInput, match="a real federation loses its own"):
        job.make_engine()
