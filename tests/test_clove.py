"""CLoVE whole: dealing, the end of clustering, newcomers, an unknown number of clusters. Numbers on paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ifca import IFCA
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Federation
from ifca.methods import method_of
from ifca.methods.dealt_start import dealt
from ifca.methods.loss_clusters import centroids, clusters_of_unknown_number, matched, nearest
from ifca.training import fit
from tests.conftest import groups, make_job, scalar_job

POINTS = [(1.0, 2.0), (1.0, 2.2), (1.0, -2.0), (1.0, -2.2)]
"""Scalar clients: two want theta = 2, two want -2."""


def test_dealing_gives_every_model_a_client() -> None:
    keys = np.arange(7, dtype=np.uint64)
    for seed in range(20):
        model = dealt(seed, 0, keys, 3)
        assert set(model.tolist()) == {0, 1, 2}
        order = np.random.default_rng(seed).permutation(7)
        assert torch.equal(dealt(seed, 0, keys[order], 3), model[order])
    assert sorted(dealt(0, 0, keys[:2], 3).tolist()) == [0, 1]  # fewer clients than models


@pytest.mark.parametrize("algorithm", ["clove", "ifca-plain"])
def test_dealt_clients_train_what_they_were_dealt(algorithm: str) -> None:
    """Theta = 1, -1; one step of 0.1 takes client (1, y) from theta to theta + 0.2 (y - theta)."""
    recipe = Recipe(algorithm, k=2, rounds=1, local_steps=1, initial="dealt", seed=1)
    job = scalar_job(POINTS, [1.0, -1.0], recipe)
    fitted = fit(job)
    got, y = fitted.history[0]["identity"], [2.0, 2.2, -2.0, -2.2]
    assert got == dealt(1, 0, job.federation.train.keys, 2).tolist()
    for j, theta in enumerate([1.0, -1.0]):
        mean = np.mean([theta + 0.2 * (y[i] - theta) for i in range(4) if got[i] == j])
        assert float(fitted.state.theta["fc1.weight"][j]) == pytest.approx(mean)
    assert fitted.history[0]["sent_all_models_to"] == []


def test_clustering_ends_and_clients_are_sent_one_model() -> None:
    """Nobody changes: rounds 1 and 2 confirm round 0, so from round 3 on each is sent its own model."""
    recipe = Recipe("clove", k=2, rounds=6, local_steps=1, stable_after=2)
    fitted = fit(scalar_job(POINTS, [1.0, -1.0], recipe))
    assert [record["sent_all_models"] for record in fitted.history] == [4, 4, 4, 0, 0, 0]
    assert fitted.labels.tolist() == [0, 0, 1, 1]
    whole = fit(scalar_job(POINTS, [1.0, -1.0], replace(recipe, stable_after=None)))
    assert torch.equal(whole.state.theta["fc1.weight"], fitted.state.theta["fc1.weight"])
    assert int(fitted.state.bytes_down.sum()) < int(whole.state.bytes_down.sum())


def test_a_newcomer_goes_to_the_nearest_centroid() -> None:
    """Clusters of losses (1, 3), (1, 5) and (4, 2): centroids (1, 4), (4, 2). A client with losses (2.4, 2.3)
    chooses model 1 itself; it is 1.6 from the second centroid and 2.2 from the first. One with (2.9, 3.1)
    chooses model 0 and belongs to cluster 1: 1.6 against 2.1.
    """
    losses = torch.tensor([[1.0, 3.0], [1.0, 5.0], [4.0, 2.0]])
    centres = centroids(losses, torch.tensor([0, 0, 1]))
    assert centres.tolist() == [[1.0, 4.0], [4.0, 2.0]]
    assert nearest(torch.tensor([[2.4, 2.3], [2.9, 3.1], [1.1, 3.9]]), centres).tolist() == [1, 1, 0]
    alone = centroids(losses, torch.tensor([0, 0, -1]))
    assert nearest(losses, alone).tolist() == [0, 0, 0]  # a cluster without clients has no centroid


def test_a_client_that_joins_after_the_end() -> None:
    """Three clients are clustered; the fourth joins when clusters stay, and gets its own without a change."""
    recipe = Recipe("clove", k=2, rounds=8, local_steps=1, stable_after=1)
    states = []
    fit(scalar_job(POINTS[:3], [1.0, -1.0], recipe), on_round=lambda state, _record: states.append(state))
    grown = method_of("clove").joined(recipe, states[4], 1)
    assert grown is not None
    fitted = fit(scalar_job(POINTS, [1.0, -1.0], recipe), resume=grown)
    assert fitted.labels.tolist() == [0, 0, 1, 1]
    assert [record["sent_all_models"] for record in fitted.history] == [4, 0, 0]
    unheard = replace(states[4], round=7, identity=torch.tensor([0, 0, 1]))
    served = method_of("clove").serves(
        replace(unheard, identity=torch.tensor([0, 0, 1, -1])),
        torch.tensor([[1.0, 3.0], [1.0, 5.0], [4.0, 2.0], [2.9, 3.1]]),
    )
    assert served.tolist() == [0, 0, 1, 1]


def test_the_number_of_clusters_by_hand() -> None:
    """Three pairs far apart under four models: K = 3. Then two clouds, where more is not a tenth better."""
    pairs = torch.tensor([[0.0, 9, 9, 5], [0.2, 9, 9, 5], [9, 0, 9, 5], [9, 0.2, 9, 5], [9, 9, 0, 5]])
    pairs = torch.cat([pairs, torch.tensor([[9, 9, 0.2, 5]])])
    found = clusters_of_unknown_number(pairs)
    assert len(set(found.tolist())) == 3
    assert matched(pairs, found).tolist() == [0, 0, 1, 1, 2, 2]
    two = torch.tensor([[1.0, 4.0], [1.1, 4.1], [1.2, 4.0], [4.0, 1.0], [4.1, 1.1], [4.0, 1.2]])
    assert len(set(clusters_of_unknown_number(two.repeat(1, 3)).tolist())) == 2
    assert clusters_of_unknown_number(torch.ones(5, 3)).tolist() == [0] * 5  # all alike
    assert clusters_of_unknown_number(torch.tensor([[1.0, 2], [2, 1]])).tolist() == [0, 1]
    assert clusters_of_unknown_number(torch.rand(5, 1)).tolist() == [0] * 5
    gone = torch.cat([torch.full((6, 1), torch.nan), two], 1)  # the first model is not there
    assert matched(gone, clusters_of_unknown_number(gone)).tolist() == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("stable", [3, None])
def test_the_number_of_clusters_is_found(stable: int | None) -> None:
    """Twelve clients of two kinds, at most five clusters."""
    recipe = Recipe("clove-auto", k=5, rounds=12, initial="dealt", stable_after=stable, step_size=0.3)
    fitted = fit(make_job(groups((60, 40, 90, 50, 70, 45) * 2), recipe))
    assert fitted.labels.tolist() in ([0, 1] * 6, [1, 0] * 6)
    assert fitted.state.k == 2
    assert fitted.history[-1]["models"] == 2


def test_auto_is_a_method_of_its_own(unequal: Federation) -> None:
    front = IFCA(algorithm="clove-auto", rounds=3)
    front.fit(unequal)
    assert front.fitted_.job.recipe.k == 7
    with pytest.raises(InvalidInput, match=r'k: clove needs .* "auto" is for ifca, clove-auto'):
        IFCA("auto", algorithm="clove").fit(unequal)
