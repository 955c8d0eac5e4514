"""SR-FCA: every step with numbers that can be redone on paper.

Clients (1, y), y = 5, 6, -5, -6, and theta = 0 for all. One step of 0.1 takes a client to 0.2 y: 1, 1.2, -1,
-1.2. So f_i(theta_j) = (0.2 y_j - y_i)^2, and d is 19.72 for 0 and 1, for 2 and 3 as well; 36 for 0 and 2;
43.72 for 0 and 3, for 1 and 2; 51.84 for 1 and 3. lambda = (19.72 + 36) / 2.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ifca.core.errors import Diverged, InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState
from ifca.methods import method_of
from ifca.methods.averaging import initial_state
from ifca.methods.cross_losses import between_clusters, kept_groups, limit_of, pivots, to_clusters
from ifca.methods.memory import record_of
from ifca.methods.own_models import trimmed
from ifca.methods.server_optimiser import server_step
from ifca.methods.sr_fca import Memory, united
from ifca.training import Fitted, fit
from tests.conftest import groups, make_job, scalar_job

POINTS = [(1.0, 5.0), (1.0, 6.0), (1.0, -5.0), (1.0, -6.0)]
RECIPE = Recipe("sr-fca", k=2, rounds=1, local_steps=1, erm_rounds=1)


def trained(recipe: Recipe, engine: str = "vectorised") -> Fitted:
    return fit(replace(scalar_job(POINTS, [0.0], recipe), engine=engine))  # type: ignore[arg-type]


def by_client(fitted: Fitted) -> list[float]:
    found: list[float] = fitted.state.theta["fc1.weight"].flatten()[fitted.labels].tolist()
    return found


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
@pytest.mark.parametrize("option", ["model", "gradient"])
def test_one_shot_by_hand(engine: str, option: str) -> None:
    """The models of both clusters are the means of 1 and 1.2, and of -1 and -1.2."""
    fitted = trained(replace(RECIPE, option=option), engine)  # type: ignore[arg-type]
    memory = record_of(Memory, fitted.state.memory)
    assert memory.limit == pytest.approx((19.72 + 36) / 2)
    assert memory.losses[0].tolist() == pytest.approx([16, 14.44, 36, 38.44])
    assert by_client(fitted) == pytest.approx([1.1, 1.1, -1.1, -1.1])


def test_two_local_rounds_by_hand() -> None:
    """The second step takes 0.2 y to 0.36 y."""
    assert by_client(trained(replace(RECIPE, erm_rounds=2))) == pytest.approx([1.98, 1.98, -1.98, -1.98])


def test_clusters_train_and_refine_by_hand() -> None:
    """From 1.1 to 1.1 + 0.2 (5 - 1.1) = 1.88 and 1.1 + 0.2 (6 - 1.1) = 2.08, mean 1.98; nobody moves."""
    fitted = trained(replace(RECIPE, rounds=2))
    assert by_client(fitted) == pytest.approx([1.98, 1.98, -1.98, -1.98])
    assert record_of(Memory, fitted.state.memory).refined == 1


def test_what_is_sent() -> None:
    """Of 8 bytes a model. Round 0: one start and four models down, one model and four losses up. Round 1: its
    model down; the update, a number and a loss up; REFINE: both models down, two losses up.
    """
    fitted = trained(replace(RECIPE, rounds=2))
    assert fitted.history[0]["bytes_down"] == 4 * (8 + 32)
    assert fitted.history[0]["bytes_up"] == 4 * (8 + 16)
    assert fitted.history[1]["bytes_down"] == 4 * (8 + 16)
    assert fitted.history[1]["bytes_up"] == 4 * (8 + 4 + 4 + 8)


def test_a_given_lambda() -> None:
    assert len(set(trained(replace(RECIPE, sr_lambda=100.0)).labels.tolist())) == 1
    assert len(set(trained(replace(RECIPE, sr_lambda=25.0, k=4)).labels.tolist())) == 2
    assert len(set(trained(replace(RECIPE, sr_lambda=1.0, k=4)).labels.tolist())) == 4  # nobody has any
    for wrong in (0.0, -1.0, math.inf):
        with pytest.raises(InvalidInput, match="sr_lambda must be"):
            Recipe(sr_lambda=wrong)
    with pytest.raises(InvalidInput, match="resample: not for sr-fca"):
        trained(replace(RECIPE, resample=True))


def test_the_limit_is_free_of_scale() -> None:
    near = torch.tensor([[0.0, 1, 5, 6], [1, 0, 5, 6], [5, 5, 0, 2], [6, 6, 2, 0]])
    assert limit_of(near) == 3.5  # 1, 2 | 5, 5, 6, 6
    assert limit_of(10 * near + 7) == 42
    assert limit_of(torch.ones(3, 3)) == math.inf  # nothing to part
    assert limit_of(near[:1, :1]) == math.inf
    assert limit_of(torch.where(near == 6, torch.nan, near)) == 3.5


def test_pivots_and_groups_by_hand() -> None:
    """A chain 0 - 1 - 2 and 3 alone: from 1 it is one group, from 0 two and 2 is left alone."""
    chain = torch.tensor([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]).bool()
    assert pivots(chain, np.array([1, 3, 0, 2])).tolist() == [0, 0, 0, 1]
    assert pivots(chain, np.array([3, 0, 1, 2])).tolist() == [1, 1, 2, 0]
    near = torch.tensor([[0.0, 1, 3, 9], [1, 0, 1, 8], [3, 1, 0, 4], [9, 8, 4, 0]])
    assert kept_groups(torch.tensor([1, 1, 2, 0]), near, 4).tolist() == [0, 0, 0, 0]
    assert kept_groups(torch.tensor([0, 0, 1, 1]), near, 4).tolist() == [0, 0, 1, 1]
    assert kept_groups(torch.tensor([0, 0, 1, 1]), near, 1).tolist() == [0, 0, 0, 0]
    assert kept_groups(torch.tensor([0, 1, 2, 3]), near, 2).tolist() == [0, 1, 1, 1]  # all alone


def test_refine_by_hand() -> None:
    """Client 0 in cluster 0 with client 1: f_0 = 2, 1 under both models; its own model costs client 1 of
    cluster 0 8, and client 2 of cluster 1 4. So (2 + 8) / 2 = 5 against (1 + 4) / 2 = 2.5.
    """
    losses = torch.tensor([[2.0, 1.0], [3.0, 7.0], [9.0, 1.0]])
    crossed = torch.tensor([[0.0, 6.0, 6.0], [8.0, 0.0, 6.0], [4.0, 6.0, 0.0]])
    own = torch.tensor([0, 0, 1])
    found = to_clusters(losses, crossed, own)
    assert found[0].tolist() == [5.0, 2.5]
    assert found[2].tolist() == [7.5, 1.0]  # alone in its cluster: f_2(theta_1) only
    assert between_clusters(losses, own).tolist() == [[2.5, 6.5], [6.5, 1.0]]  # (4 + 9) / 2


def test_united_clusters_and_their_optimiser_begin_anew() -> None:
    """1 of three clients and 5 of one become 2. 7 stays, and so does what its optimiser remembers."""
    recipe = Recipe("sr-fca", server_optimizer="momentum", server_betas=(0.5, 0.5))
    state = initial_state({"w": torch.tensor([[1.0], [5.0], [7.0]])}, torch.tensor([0, 0, 0, 1, 2]))

    def moved(state: ClusterState) -> ClusterState:
        averages = {"w": state.theta["w"] + 1}
        _, moments = server_step(recipe, state, averages, state.live.double(), frozenset())
        return replace(state, moments=moments)

    neighbours = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    after = united(moved(state), state.identity, neighbours)
    assert after.theta["w"].flatten().tolist() == [2, 0, 7]
    assert after.identity.tolist() == [0, 0, 0, 0, 2]
    assert moved(after).moments["first.w"].flatten().tolist() == [1, 1, 1.5]


def test_the_trimmed_mean_by_hand() -> None:
    values = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [100.0]])
    assert next(trimmed(lambda: iter([values]), values[:, 0])).tolist() == [4.0]  # of 2 to 6
    assert next(trimmed(lambda: iter([values[4:]]), values[:, 0])).tolist() == [37.0]  # of three: all


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_clusters_are_found_and_wrong_ones_united(kinds: int) -> None:
    """Twelve clients of unequal sizes, at most six clusters, half of the clients in a round."""
    federation = groups((60, 40, 90, 50, 70, 45) * 2, clusters=kinds, seed=3)
    recipe = Recipe("sr-fca", k=6, rounds=16, step_size=0.3, erm_rounds=4, participation=0.5)
    fitted = fit(make_job(federation, recipe))
    true = federation.train.true_cluster
    assert true is not None
    assert fitted.state.k == kinds
    assert len(set(zip(true.tolist(), fitted.labels.tolist(), strict=True))) == kinds


def test_a_client_that_joins_chooses() -> None:
    recipe, states = replace(RECIPE, rounds=4, erm_rounds=2), []
    fit(scalar_job(POINTS, [0.0], recipe), on_round=lambda state, _record: states.append(state))
    grown = method_of("sr-fca").joined(recipe, states[0], 1)
    assert grown is not None
    fitted = fit(scalar_job([*POINTS, (1.0, -4.0)], [0.0], recipe), resume=grown)
    assert fitted.labels[4] == fitted.labels[2] != fitted.labels[0]
    assert bool(torch.isfinite(fitted.own_loss).all())


def test_divergence_is_told_and_mended() -> None:
    """A step that takes the updates beyond all numbers after the first round."""
    federation = groups((60, 40, 90, 50, 70, 45))
    recipe = Recipe("sr-fca", k=2, rounds=12, step_size=1e6, erm_rounds=5)
    with pytest.raises(Diverged, match="training diverged"):
        fit(make_job(federation, recipe))
    mended = fit(make_job(federation, replace(recipe, step_size=100.0, on_divergence="halve")))
    assert mended.state.progress.halved
    assert mended.train_loss < 1.1
