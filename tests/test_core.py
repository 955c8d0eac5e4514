"""The pieces of core one by one: identities, stability, the ledger, draws, restarts, metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ifca.core.errors import InvalidInput
from ifca.core.identity import identity, known_identity, rounds_unchanged
from ifca.core.initial import assert_distinct, bernoulli, best_restart, warm_start, with_shared_of
from ifca.core.ledger import Wire
from ifca.core.metrics import adjusted_rand_index, cluster_accuracy, cluster_sizes, distance
from ifca.core.random import bits, generator, shuffled
from ifca.core.recipe import Recipe
from ifca.core.sampling import make_plan, participants
from ifca.core.types import ClusterState
from ifca.data import Federation
from ifca.methods.one_shot import checked
from ifca.models import linear, make_draw
from ifca.training import Job
from ifca.training.start import clusters_of, start


def state(
    identities: list[int], *, t: int = 0, unchanged: int = 0, checked: int = -1, changed: int = 0
) -> ClusterState:
    none = torch.zeros(len(identities), dtype=torch.long)
    theta = {"w": torch.tensor([[0.0], [1.0]])}
    asked = torch.where(torch.tensor(identities) >= 0, checked, -1)
    live = torch.tensor([True, True])
    return ClusterState(
        theta, live, t, torch.tensor(identities), unchanged, checked, changed, asked, none, none
    )


class TestIdentity:
    def test_lowest_loss_wins_ties_go_first_and_nan_never_wins(self) -> None:
        nan, inf = math.nan, math.inf
        losses = torch.tensor([[3, 1, 2], [1, 1, 2], [nan, 5, 4], [nan, nan, nan], [inf, nan, 7]])
        assert identity(losses).tolist() == [1, 0, 2, 0, 2]

    def test_all_models_are_sent_until_identities_are_stable(self) -> None:
        recipe, who = Recipe(stable_after=2, recheck_every=3), torch.arange(3)
        unstable, stable = state([0, 1, -1], t=5, unchanged=1), state([0, 1, -1], t=5, unchanged=2, checked=4)
        assert known_identity(recipe, unstable, who).tolist() == [-1, -1, -1]
        assert known_identity(recipe, stable, who).tolist() == [0, 1, -1]  # a client never seen is sent all
        assert known_identity(Recipe(), stable, who).tolist() == [-1, -1, -1]  # the saving is off by default

    def test_a_client_not_asked_since_the_last_change_is_asked_again(self) -> None:
        """Client 0 judged the models in round 4, the last change was in round 5."""
        recipe, before = Recipe(stable_after=2, recheck_every=9), state([0], t=8, unchanged=2, checked=4)
        assert known_identity(recipe, replace(before, changed=4), torch.tensor([0])).tolist() == [0]
        assert known_identity(recipe, replace(before, changed=5, checked=7), torch.tensor([0])).tolist() == [
            -1
        ]

    def test_recheck_after_r_rounds(self) -> None:
        recipe = Recipe(stable_after=2, recheck_every=3)
        sent = [
            int(known_identity(recipe, state([0], t=t, unchanged=2, checked=4), torch.tensor([0]))[0])
            for t in range(5, 9)
        ]
        assert sent == [0, 0, -1, -1]

    def test_rounds_without_a_change_are_counted(self) -> None:
        before, who, asked = state([0, 1, -1], unchanged=4), torch.arange(3), torch.tensor([True] * 3)
        assert (
            rounds_unchanged(before, who, asked, torch.tensor([0, 1, 1])) == 5
        )  # a newcomer changes nothing
        assert rounds_unchanged(before, who, asked, torch.tensor([1, 1, 1])) == 0
        assert rounds_unchanged(before, who[2:], asked[2:], torch.tensor([1])) == 4  # nobody was re-confirmed
        assert rounds_unchanged(before, who, ~asked, torch.tensor([1, 0, 0])) == 4  # nobody was asked


class TestLedger:
    def test_bytes_of_a_model_with_a_shared_layer(self) -> None:
        """Shared: 10 floats; clustered: 3 floats; k = 4. Down all: 40 + 4 x 12; own: 40 + 12."""
        theta = {"trunk": torch.zeros(4, 10), "head": torch.zeros(4, 3)}
        live = torch.ones(4, dtype=torch.bool)
        wire = Wire.of(theta, live, frozenset({"trunk"}))
        own = torch.tensor([False, True])
        assert wire.down(own).tolist() == [88, 52]
        assert wire.up(own).tolist() == [52 + 4 + 16, 52 + 4 + 4]  # one update, its cluster, its losses
        assert Wire.of(theta, live, frozenset()).down(own).tolist() == [208, 52]


class TestRandom:
    def test_a_number_depends_on_its_coordinates_only(self) -> None:
        keys = np.array([7, 8, 9], np.uint64)
        together = bits(1, "batches", 3, keys)
        assert together[1] == bits(1, "batches", 3, 8)[0]
        for other in (bits(2, "batches", 3, keys), bits(1, "other", 3, keys), bits(1, "batches", 4, keys)):
            assert not set(other.tolist()) & set(together.tolist())

    def test_bits_are_even(self) -> None:
        draw = bits(0, "even", np.arange(20_000, dtype=np.uint64))
        share = [float(((draw >> np.uint64(b)) & np.uint64(1)).mean()) for b in range(64)]
        assert max(abs(s - 0.5) for s in share) < 0.02

    def test_orders_are_permutations_whatever_their_neighbours(self) -> None:
        sizes = np.array([3, 6])
        orders = shuffled(0, "order", sizes, np.array([5, 6], np.uint64))
        assert sorted(orders[0].tolist()) == [-1, -1, -1, 0, 1, 2]
        assert sorted(orders[1].tolist()) == [0, 1, 2, 3, 4, 5]
        alone = shuffled(0, "order", sizes[:1], np.array([5], np.uint64))
        assert alone[0].tolist() == orders[0, :3].tolist()

    def test_torch_draws_leave_the_global_state_alone(self) -> None:
        before = torch.random.get_rng_state()
        make_draw(lambda: linear(3))(generator(0, "initial", 0))
        assert torch.equal(torch.random.get_rng_state(), before)


class TestSampling:
    def test_participants_are_a_subset_of_the_right_size_that_changes(self) -> None:
        keys = np.arange(50, dtype=np.uint64)
        rounds = [participants(Recipe(participation=0.1), t, keys).tolist() for t in range(30)]
        assert all(len(set(who)) == 5 and who == sorted(who) for who in rounds)
        assert len({tuple(who) for who in rounds}) > 25
        assert participants(Recipe(participation=0.001), 0, keys).numel() == 1

    def test_an_epoch_uses_each_sample_once(self) -> None:
        recipe = Recipe(local_epochs=2, batch_size=4)
        plan = make_plan(recipe, 0, np.arange(2, dtype=np.uint64), np.array([5, 10]))
        assert plan.steps is not None
        assert plan.steps.shape == (2, 2 * 3, 4)
        small = plan.steps[0].reshape(2, -1)
        for epoch in small:
            assert sorted(row for row in epoch.tolist() if row >= 0) == [0, 1, 2, 3, 4]
        assert small[0].tolist() != small[1].tolist()

    def test_resampling_takes_2t_disjoint_parts(self) -> None:
        """n = 13, T = 3: six parts of n' = 2, none overlapping."""
        recipe = Recipe(resample=True, rounds=3, option="gradient")
        used: list[int] = []
        for t in range(3):
            plan = make_plan(recipe, t, np.array([1], np.uint64), np.array([13]))
            assert plan.identity is not None
            assert plan.steps is not None
            used += [*plan.identity[0].tolist(), *plan.steps[0, 0].tolist()]
        assert len(used) == len(set(used)) == 12

    def test_resampling_needs_2t_samples(self) -> None:
        with pytest.raises(InvalidInput, match="2 x rounds = 8 parts"):
            make_plan(Recipe(resample=True, rounds=4), 0, np.array([1], np.uint64), np.array([7]))


class TestInitial:
    def test_bernoulli_coordinates_are_zero_or_one(self) -> None:
        weight = bernoulli(make_draw(lambda: linear(1000)))(generator(0, "initial"))["fc1.weight"]
        assert set(weight.flatten().tolist()) == {0.0, 1.0}
        assert 430 < int(weight.sum()) < 570

    def test_warm_start_takes_k_models_or_one_trunk(self) -> None:
        drawn = {"trunk": torch.zeros(2, 3), "head": torch.tensor([[1.0], [2.0]])}
        one = {"trunk": torch.full((1, 3), 7.0), "head": torch.full((1, 1), 9.0)}
        warm = with_shared_of(one, drawn, frozenset({"trunk"}))
        assert warm["trunk"].tolist() == [[7.0] * 3] * 2
        assert warm["head"].tolist() == [[1.0], [2.0]]
        with pytest.raises(InvalidInput, match="no parameter head of shape"):
            warm_start({"trunk": one["trunk"]}, drawn, frozenset())

    def test_equal_initial_models_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match="models 0 and 2 are equal"):
            assert_distinct({"w": torch.tensor([[1.0], [2.0], [1.0]])})

    def test_best_restart_is_the_lowest_finite_loss(self) -> None:
        assert best_restart([0.5, math.nan, 0.3, math.inf]) == 2
        with pytest.raises(InvalidInput, match="no restart"):
            best_restart([math.nan])


class TestMetrics:
    def test_clusterings_are_compared_up_to_permutation(self) -> None:
        assert cluster_accuracy([0, 0, 1, 1], [5, 5, 3, 3]) == 1
        assert cluster_accuracy([0, 0, 1, 1], [1, 1, 1, 0]) == 0.75
        assert cluster_accuracy([0, 0, 1, 1], [0, 0, 0, 0]) == 0.5
        assert cluster_accuracy([0, 0, 0], [0, 1, 2]) == pytest.approx(1 / 3)
        assert adjusted_rand_index([0, 0, 1, 1], [1, 1, 0, 0]) == 1
        assert adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)
        with pytest.raises(InvalidInput, match=r"got \(3,\) and \(1,\)"):
            adjusted_rand_index([0, 1, 2], [5])

    def test_distance_matches_one_to_one(self) -> None:
        """Both models near the same theta*: one of them is matched to the far one (D3)."""
        star = {"w": torch.tensor([[0.0, 0.0], [3.0, 4.0]])}
        assert distance({"w": torch.tensor([[3.0, 4.0], [0.0, 1.0]])}, star) == pytest.approx(0.5)
        assert distance({"w": torch.zeros(2, 2)}, star) == pytest.approx(2.5)

    def test_sizes_ignore_clients_never_seen(self) -> None:
        assert cluster_sizes(torch.tensor([0, 2, -1, 2]), 4) == [1, 0, 2, 0]


class TestRecipe:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("k", 0),
            ("rounds", 0),
            ("step_size", 0.0),
            ("step_size", math.nan),
            ("step_decay", 1.1),
            ("participation", 0.0),
            ("participation", 1.5),
            ("local_steps", 0),
            ("batch_size", 0),
            ("l2", -1.0),
            ("stable_after", 0),
            ("recheck_every", 0),
            ("restarts", 0),
            ("erm_step_size", -0.5),
            ("seed", -1),
        ],
    )
    def test_errors_name_the_field(self, field: str, value: float) -> None:
        with pytest.raises(InvalidInput, match=field):
            replace(Recipe(), **{field: value})  # type: ignore[arg-type]

    def test_combinations_that_make_no_sense(self) -> None:
        with pytest.raises(InvalidInput, match="local_epochs needs batch_size"):
            Recipe(local_epochs=1)
        with pytest.raises(InvalidInput, match="resample"):
            Recipe(resample=True, batch_size=3)


def test_one_shot_takes_any_clusterer_and_checks_it() -> None:
    class Halves:
        def fit_predict(self, points: np.ndarray) -> np.ndarray:
            return (points[:, 0] > 0).astype(int)

    class Wrong:
        def fit_predict(self, points: np.ndarray) -> list[int]:
            return [5] * len(points)

    models = {"w": torch.tensor([[-1.0], [2.0], [-3.0]])}
    federation = Federation.from_arrays([np.ones((2, 1))] * 3, [np.ones(2)] * 3)
    recipe = Recipe(algorithm="oneshot", k=2, erm_step_size=1e-3)
    job = Job(federation, recipe, lambda: linear(1), clusterer=Halves())
    assert checked(clusters_of(job, models), 3, 2).tolist() == [0, 1, 0]
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        start(replace(job, clusterer=Wrong()))
