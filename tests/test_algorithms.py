"""The algorithms do what the paper says they do: recover clusters, save bytes, fall back to baselines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ifca.core.errors import Diverged, InvalidInput
from ifca.core.metrics import cluster_accuracy, distance
from ifca.core.recipe import Recipe
from ifca.data import Client, Federation, mixture_of_regressions
from ifca.models import linear, mlp
from ifca.training import Job, fit
from tests.conftest import groups, make_job, scalar_job


def regressions(**options: object) -> tuple[Job, torch.Tensor]:
    federation, star = mixture_of_regressions(
        clients=20, samples=40, dimension=20, clusters=2, noise=0.1, test_samples=10
    )
    recipe = Recipe(
        algorithm="ifca-plain",
        k=2,
        rounds=60,
        option="gradient",
        step_size=0.5,
        initial="bernoulli",
        evaluate_every=0,
    )
    recipe = replace(recipe, **options)  # type: ignore[arg-type]
    return Job(federation, recipe, lambda: linear(20)), star


@pytest.mark.parametrize("seed", [0, 1])
def test_ifca_recovers_the_regressions(seed: int) -> None:
    job, star = regressions(seed=seed)
    best = min((fit(job, restart=restart) for restart in range(3)), key=lambda f: f.train_loss)
    true = job.federation.train.true_cluster
    assert true is not None
    assert cluster_accuracy(true, best.labels.numpy()) == 1
    assert distance(best.state.theta, {"fc1.weight": star[:, None, :]}) < 0.6 * 0.1


def test_one_shot_recovers_the_regressions_and_sends_one_model_a_round() -> None:
    job, _ = regressions(algorithm="oneshot", erm_rounds=5, local_steps=10, erm_step_size=0.1)
    fitted = fit(job)
    true = job.federation.train.true_cluster
    assert true is not None
    assert cluster_accuracy(true, fitted.labels.numpy()) == 1
    assert fitted.state.bytes_down.tolist() == [60 * 20 * 4] * 20
    assert fitted.state.bytes_up.tolist() == [20 * 4 + 60 * (20 * 4 + 8)] * 20  # the local solution first


def test_one_shot_says_when_the_local_solutions_are_none() -> None:
    with pytest.raises(Diverged, match=r"set erm_step_size to less than 0\.5"):
        fit(regressions(algorithm="oneshot")[0])


def test_global_and_local_bytes() -> None:
    assert fit(regressions(algorithm="global")[0]).state.bytes_down.tolist() == [60 * 20 * 4] * 20
    local = fit(regressions(algorithm="local")[0]).state
    assert int(local.bytes_down.sum() + local.bytes_up.sum()) == 0


def test_with_gradients_a_given_cluster_divides_by_its_own_members() -> None:
    """Local: a client alone takes the whole step. Clients (1, 2), (1, -2), step 0.1, from theta = 1."""
    job = scalar_job([(1.0, 2.0), (1.0, -2.0)], [1.0], Recipe(algorithm="local", rounds=1, option="gradient"))
    assert fit(job).state.theta["fc1.weight"].flatten().tolist() == pytest.approx([1.2, 0.4])


def test_stable_identities_save_bytes_and_change_no_model() -> None:
    plain = fit(regressions()[0])
    saving = fit(regressions(stable_after=3, recheck_every=10)[0])
    assert torch.equal(plain.labels, saving.labels)
    torch.testing.assert_close(plain.state.theta, saving.state.theta)
    sent = [record["sent_all_models"] for record in saving.history]
    first = sent.index(0)  # the first round in which everybody got only their own model
    assert sent[:first] == [20] * first
    assert [t for t in range(first, 60) if sent[t]] == list(range(first + 9, 60, 10))  # re-checks
    model = 20 * 4
    expected = sum(2 * model if n else model for n in sent)
    assert saving.state.bytes_down.tolist() == [expected] * 20
    assert plain.state.bytes_down.tolist() == [2 * model * 60] * 20
    for fitted in (plain, saving):
        assert sum(record["bytes_down"] for record in fitted.history) == int(fitted.state.bytes_down.sum())
        assert sum(record["bytes_up"] for record in fitted.history) == int(fitted.state.bytes_up.sum())


def test_a_changed_identity_on_a_recheck_brings_all_models_back() -> None:
    """Client 1 sits between two moving models: it starts with model 0 and prefers model 1 later."""
    points = [(1.0, 0.0), (1.0, 2.9), (1.0, 10.0), (1.0, 10.0)]
    recipe = Recipe(
        algorithm="ifca-plain", k=2, rounds=12, local_steps=1, step_size=0.05, stable_after=1, recheck_every=4
    )
    fitted = fit(scalar_job(points, [1.0, 7.0], recipe))
    assert len({record["identity"][1] for record in fitted.history}) == 1
    # model 1 moves to 10, model 0 to the mean of 0 and 2.9: nobody changes, so only re-checks send all
    assert [r["round"] for r in fitted.history if r["sent_all_models"]] == [0, 1, 5, 9]


def test_resampling_uses_fresh_data_and_still_converges() -> None:
    federation, star = mixture_of_regressions(clients=20, samples=1200, dimension=10, clusters=2, noise=0.1)
    recipe = Recipe(
        algorithm="ifca-plain",
        k=2,
        rounds=20,
        option="gradient",
        step_size=0.8,
        initial="bernoulli",
        resample=True,
    )
    starts = [fit(Job(federation, recipe, lambda: linear(10)), restart=r) for r in range(3)]
    best = min(starts, key=lambda f: f.train_loss)
    assert distance(best.state.theta, {"fc1.weight": star[:, None, :]}) < 0.1


def test_resampling_says_that_samples_set_aside_do_not_count() -> None:
    """Of 10 samples two are set aside while the referee has not decided: 8 are too few for 10 parts."""
    job = make_job(groups((10, 10, 10, 10)), Recipe(k=2, rounds=5, option="gradient", resample=True))
    few = replace(job, recipe=replace(job.recipe, rounds=4))
    assert len(fit(few).history) == 4
    with pytest.raises(InvalidInput, match="trains on only 8 samples, not counting those it has set aside"):
        fit(job)


def test_divergence_stops_with_advice() -> None:
    with pytest.raises(Diverged, match=r"smaller step_size than 1000.0"):
        fit(regressions(step_size=1000.0)[0])


def test_k_beyond_the_clients_is_refused() -> None:
    with pytest.raises(InvalidInput, match="k is 9, but the federation has only 7 clients"):
        make_job(groups((3,) * 7), Recipe(algorithm="ifca-plain", k=9))


def test_test_clients_never_seen_in_training() -> None:
    """Train rule: only for clients with training data. Paper's rule: for everybody."""
    train, test = groups((10, 12, 9, 8)), groups((6, 7), seed=0)
    assert test.test is not None
    renamed = replace(test.test, ids=("c0", "stranger"))
    federation = Federation(train.train, renamed, 3)
    fitted = fit(make_job(federation, Recipe(k=2, rounds=3)))
    assert fitted.test is not None
    assert fitted.test.train_rule.tolist() == [fitted.labels[0], -1]
    assert fitted.test.accuracy(fitted.test.train_rule) == float(
        fitted.test.scores.correct[0, fitted.labels[0]] / 5
    )


def test_no_test_data_is_fine() -> None:
    federation = Federation.from_arrays([np.eye(3), np.eye(3) * 2], [np.arange(3), np.arange(3)])
    assert fit(Job(federation, Recipe(k=2, rounds=2), lambda: mlp(3, 3, (4,)))).test is None


def test_several_targets_in_regression() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 30, 4))
    y = x @ rng.normal(size=(4, 2))
    federation = Federation.from_clients([Client(x[i], y[i]) for i in range(6)])
    assert federation.outputs == 2
    for engine in ("loop", "vectorised"):
        job = Job(federation, Recipe(k=1, rounds=30), lambda: linear(4, 2), engine=engine)
        assert fit(job).train_loss < 1e-4
