"""One mechanism for all clusters: clips, noise and counts that can be redone on paper; what epsilon is."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.private import METHODS, MULTIPLIERS
from benchmarks.private_table import table

from ifca.core.averages import fold, gradient_averaging, zero_sum
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.sampling import participants
from ifca.core.types import ClientReply, ClusterState, ClusterSum, Params
from ifca.methods.accountant import epsilon, noise_for, rounds_within
from ifca.methods.averaging import initial_state
from ifca.methods.private_sum import COUNT, ONE, Noise, clipped, noised
from ifca.runs.units.lines import read_lines
from ifca.training import fit
from ifca.training.job import EngineName
from tests.conftest import scalar_job

TINY = 1e-12  # a noise multiplier that noises nothing
POINTS = [(1.0, 2.0), (1.0, -2.0), (1.0, 4.0)]  # of test_by_hand.py: A and C choose theta_0, B theta_1


def private(**settings: object) -> Recipe:
    given = {"algorithm": "ifca-plain", "k": 2, "rounds": 1, "local_steps": 1, "dp_noise": TINY, **settings}
    return Recipe(**given)  # type: ignore[arg-type]


def state_of(theta: Params) -> ClusterState:
    return initial_state(theta, torch.full((3,), -1))


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_changes_are_clipped_then_averaged(engine: EngineName) -> None:
    """Steps from 1 and -1: A +0.2, C +0.6, B -0.2; clipped to 0.3 A and C move theta_0 by their mean 0.25."""
    job = replace(scalar_job(POINTS, [1.0, -1.0], private(dp_clip=0.3)), engine=engine)
    fitted = fit(job)
    assert fitted.state.theta["fc1.weight"].flatten().tolist() == pytest.approx([1.25, -1.2])
    assert fitted.history[0]["clipped"] == pytest.approx(1 / 3)
    assert fitted.history[0]["moved"] == [True, True]


def test_gradients_are_clipped_and_divided_by_all_participants() -> None:
    """Gradients A -2, B 2, C -6, clipped to 3: theta_0 = 1 + 0.1/3 (2 + 3), theta_1 = -1 - 0.1/3 (2)."""
    fitted = fit(scalar_job(POINTS, [1.0, -1.0], private(option="gradient", dp_clip=3.0)))
    assert fitted.state.theta["fc1.weight"].flatten().tolist() == pytest.approx([1 + 0.5 / 3, -1 - 0.2 / 3])


def test_the_clip_is_over_all_parameters_together() -> None:
    theta = {"own": torch.zeros(2, 1), "shared": torch.ones(2, 1)}
    update = {"own": torch.tensor([[3.0], [0.3]]), "shared": torch.tensor([[5.0], [1.4]])}
    reply = ClientReply(torch.tensor([0, 1]), torch.zeros(2, 2), update)
    short, which = clipped(private(shared=("shared",)), theta, reply)  # changes (3, 4) and (0.3, 0.4)
    assert torch.cat([short["own"], short["shared"] - 1], 1).flatten().tolist() == pytest.approx(
        [0.6, 0.8, 0.3, 0.4]
    )
    assert which.tolist() == [True, False]


def summed(recipe: Recipe, theta: Params, identity: list[int], update: Params) -> ClusterSum:
    reply = ClientReply(torch.tensor(identity), torch.zeros(len(identity), 2), update)
    short, _ = clipped(recipe, theta, reply)
    return fold(zero_sum(theta), reply.identity, short, torch.ones(len(identity)))


def test_one_client_changes_the_whole_release_by_no_more_than_the_sensitivity() -> None:
    """Sums of both clusters, the shared sum and counts in units of C / 3 are one vector."""
    recipe, rng = private(shared=("s",), dp_clip=0.5), torch.Generator().manual_seed(0)
    theta = {"a": torch.randn(2, 4, generator=rng), "s": torch.randn(1, 3, generator=rng).expand(2, 3)}
    longest = 0.0
    for client in range(6):
        update = {name: torch.randn(6, value.shape[1], generator=rng) * 9 for name, value in theta.items()}
        whole = summed(recipe, theta, [0, 1, 0, 1, 1, 0], update)
        left = [i for i in range(6) if i != client]
        less = summed(
            recipe, theta, [i % 2 if i < 4 else 5 - i for i in left], {n: v[left] for n, v in update.items()}
        )
        gone = {n: (whole.total[n] - less.total[n]) for n in theta}
        count = whole.weight - less.weight  # [2]
        moved = {n: value - count[:, None] * theta[n] for n, value in gone.items()}
        square = (
            moved["a"].square().sum()
            + moved["s"].sum(0).square().sum()
            + (count * 0.5 / COUNT).square().sum()
        )
        longest = max(longest, float(square.sqrt()))
    assert longest == pytest.approx(0.5 * ONE, rel=1e-6)  # all were clipped: it is reached, not passed


def test_noise_has_the_size_that_is_stated() -> None:
    """Over many rounds, of models with 2 coordinates of their own and 1 shared: both sums, and counts."""
    noise, theta = Noise(2.0, 0.5), {"a": torch.zeros(2, 2), "s": torch.zeros(2, 1)}
    recipe = private(option="gradient", dp_noise=2.0, dp_clip=0.5, shared=("s",))
    sums = ClusterSum(
        {name: value.double() for name, value in theta.items()}, torch.tensor([1e6, 1e6]).double()
    )
    found = []
    for t in range(2000):
        out = noised(recipe, noise, replace(state_of(theta), round=t), sums, frozenset({"s"}))
        scale = 2e6 / out.weight.sum()  # counts hardly change the division
        found.append(
            [*(out.total["a"] * scale).flatten(), (out.total["s"].sum() * scale), *(out.weight - 1e6)]
        )
    spread = np.array(found).std(0)
    assert spread[:5] == pytest.approx(noise.of_sums, rel=0.06)
    assert spread[5:] == pytest.approx(noise.of_counts, rel=0.06)
    assert noise.of_sums / 0.5 == pytest.approx(2 * math.sqrt(1 + 1 / 9))
    assert noise.of_counts == pytest.approx(3 * noise.of_sums / 0.5)


def test_a_cluster_with_a_small_noisy_count_keeps_its_model() -> None:
    """Noise multiplier 1: counts have a standard deviation of 3.2, so a model moves from 6.3 on."""
    theta, recipe = {"a": torch.tensor([[1.0], [5.0]])}, private(dp_noise=1.0)
    sums = ClusterSum({"a": torch.tensor([[200.0], [5.0]]).double()}, torch.tensor([200.0, 1.0]).double())
    outs = [
        noised(recipe, Noise(1.0, 1.0), replace(state_of(theta), round=t), sums, frozenset())
        for t in range(50)
    ]
    assert all(out.weight[0] > 180 for out in outs)
    small = [float(out.weight[1]) for out in outs]
    assert small.count(0.0) > 40
    assert min(weight for weight in small if weight) >= Noise(1.0, 1.0).least
    assert all(float(out.total["a"][1]) == 0.0 for out in outs if out.weight[1] == 0)


def test_an_empty_round_moves_no_model_by_more_than_its_noise() -> None:
    """Noisy counts below zero do not make the number of participants, which option I divides by, none."""
    theta, noise = {"w": torch.zeros(6, 1)}, Noise(1.0, 1.0)
    for seed in range(600):
        recipe = private(option="gradient", k=6, dp_noise=1.0, seed=seed)
        total = noised(recipe, noise, state_of(theta), zero_sum(theta), frozenset())
        moved = gradient_averaging(theta, total, 1.0, frozenset())["w"]
        assert float(moved.abs().max()) < 6 * noise.of_sums / noise.least


def test_another_secret_and_other_sums_have_other_noise() -> None:
    """With the same noise the difference of two releases would have none."""
    theta, recipe = {"a": torch.zeros(1, 3)}, private(dp_noise=1.0, k=1)
    state = state_of(theta)

    def release(value: float, secret: int | None) -> list[float]:
        sums = ClusterSum({"a": torch.full((1, 3), value).double()}, torch.tensor([100.0]).double())
        found: list[float] = (
            noised(recipe, Noise(1.0, 1.0), state, sums, frozenset(), secret).total["a"][0].tolist()
        )
        return [one - value for one in found]

    assert release(7.0, None) == pytest.approx(release(0.0, None))
    assert release(7.0, 5) == release(7.0, 5)
    assert release(7.0, 5) != pytest.approx(release(7.0, 6))
    assert release(7.0, 5) != pytest.approx(release(0.0, 5))


def test_clients_are_drawn_by_themselves() -> None:
    recipe, keys = private(participation=0.25), np.arange(1000, dtype=np.uint64)
    drawn = [participants(recipe, t, keys) for t in range(200)]
    sizes = np.array([len(who) for who in drawn])
    assert sizes.mean() == pytest.approx(250, abs=3)
    assert sizes.std() == pytest.approx(math.sqrt(1000 * 0.25 * 0.75), rel=0.2)  # not always as many
    assert participants(recipe, 0, keys, secret=9).tolist() != drawn[0].tolist()
    few = [len(participants(private(participation=0.01), t, keys[:5])) for t in range(50)]
    assert min(few) == 1  # where nobody is drawn one takes part; its probability is in delta


def hockey_stick(noise: float, q: float, eps: float) -> float:
    """The delta of one round by its definition, one client more or less, by adding up."""
    x = np.linspace(-12 * noise, 1 + 12 * noise, 400_001)
    without = np.exp(-0.5 * (x / noise) ** 2) / (noise * math.sqrt(2 * math.pi))
    shifted = np.exp(-0.5 * ((x - 1) / noise) ** 2) / (noise * math.sqrt(2 * math.pi))
    having = (1 - q) * without + q * shifted
    both = [np.maximum(a - math.exp(eps) * b, 0).sum() for a, b in ((having, without), (without, having))]
    return float(max(both) * (x[1] - x[0]))


class TestAccountant:
    @pytest.mark.parametrize("noise", [0.7, 2.0, 9.0])
    def test_one_round_of_all_clients(self, noise: float) -> None:
        assert hockey_stick(noise, 1.0, epsilon(noise, 1.0, 1, 1e-5)) == pytest.approx(1e-5, rel=1e-3)

    def test_rounds_of_all_clients_are_one_with_less_noise(self) -> None:
        assert epsilon(10.0, 1.0, 100, 1e-5) == pytest.approx(epsilon(1.0, 1.0, 1, 1e-5))
        assert epsilon(1.0, 1.0, 1, 1e-5) == pytest.approx(4.3772, abs=1e-4)
        assert epsilon(1e6, 1.0, 1, 1e-5) == 0.0

    @pytest.mark.parametrize("budget", [1.0, 8.0])
    def test_the_noise_spends_the_budget_and_no_more(self, budget: float) -> None:
        spent = epsilon(noise_for(budget, 1.0, 60, 1e-5), 1.0, 60, 1e-5)
        assert 0.99 * budget < spent <= budget

    def test_rounds_within_a_budget(self) -> None:
        rounds = rounds_within(4.0, 10.0, 1.0, 1e-5, 1000)
        assert epsilon(10.0, 1.0, rounds, 1e-5) <= 4.0 < epsilon(10.0, 1.0, rounds + 1, 1e-5)
        assert rounds_within(4.0, 10.0, 1.0, 1e-5, rounds - 1) == rounds - 1
        assert rounds_within(0.1, 1.0, 1.0, 1e-5, 50) == 0

    @pytest.mark.parametrize(("noise", "q"), [(1.0, 0.1), (2.0, 0.5)])
    def test_one_sampled_round(self, noise: float, q: float) -> None:
        pytest.importorskip("dp_accounting")
        assert hockey_stick(noise, q, epsilon(noise, q, 1, 1e-5)) == pytest.approx(1e-5, rel=0.02)

    # noise, q, rounds, what Opacus 1.6.0 says: its PRV accountant to 0.01, never less than the truth
    OPACUS = ((1.0, 0.1, 100, 7.0571), (4.0, 0.25, 200, 3.9596), (1.0, 0.01, 10_000, 6.1980))

    @pytest.mark.parametrize(("noise", "q", "rounds", "known"), OPACUS)
    def test_sampled_rounds_are_as_opacus_counts_them(
        self, noise: float, q: float, rounds: int, known: float
    ) -> None:
        pytest.importorskip("dp_accounting")
        found = epsilon(noise, q, rounds, 1e-5)
        assert known - 0.02 < found < known + 0.01
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from opacus.accountants import PRVAccountant
        except ImportError:
            return
        other = PRVAccountant()
        other.history = [(noise, q, rounds)]
        assert float(other.get_epsilon(1e-5)) == pytest.approx(known, abs=1e-3)

    def test_little_noise_is_counted_as_if_all_took_part(self) -> None:
        """Its privacy losses are too many to list."""
        assert epsilon(1e-5, 0.5, 6, 1e-5) == epsilon(1e-5, 1.0, 6, 1e-5)

    def test_sampling_helps_and_its_noise_spends_the_budget(self) -> None:
        pytest.importorskip("dp_accounting")
        noise = noise_for(4.0, 0.1, 100, 1e-5)
        assert noise < noise_for(4.0, 1.0, 100, 1e-5) / 4
        assert 3.98 < epsilon(noise, 0.1, 100, 1e-5) <= 4.0


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"dp_noise": 0.0}, "dp_noise must be a positive number"),
        ({"dp_noise": 1e-300}, "dp_noise must be at least 1e-100"),
        ({"dp_epsilon": -1.0}, "dp_epsilon must be a positive number"),
        ({"dp_delta": 1.0}, "dp_delta must be in"),
        ({"early_stopping": True}, "early_stopping does not go with dp_epsilon or dp_noise: give the number"),
        ({"restarts": 3}, "set restarts = 1"),
        ({"initial": "balanced"}, 'initial = "balanced" does not go with dp_epsilon'),
        ({"weighted": True}, "every client must weigh the same"),
        ({"aggregation": "median"}, 'aggregation = "median" does not go with'),
        ({"class_weights": "balanced"}, "give the weights as numbers"),
        ({"stable_after": 3}, "stable_after does not go with"),
        ({"personalise": True}, "ifca predict RUN ITS-DATA --personalise"),
        ({"batch_norm": "average"}, "use a model without batch norm"),
    ],
)
def test_what_epsilon_would_not_cover_is_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        private(**settings)


def test_the_benchmark_has_the_noise_of_the_accountant() -> None:
    """Its machine has no accountant; never less noise than is needed, and hardly more."""
    from benchmarks.private import DELTA, MULTIPLIERS, units

    for (budget, rounds), noise in MULTIPLIERS.items():
        assert 0.998 * budget < epsilon(noise, 1.0, rounds, DELTA) <= budget
    assert len(units((), (), range(5), tune=False)) == 5 * 2 * (4 * 4 + 1)
    assert len(units((), (), range(5), tune=True)) == 6 * 2 * 3 * 4


def test_the_table_of_the_docs_is_made_from_the_lines() -> None:
    root = Path(__file__).parent.parent
    made = json.loads((root / "results" / "private" / "summary.json").read_text())
    written = (root / "results" / "private" / "table.md").read_text()
    assert table(made["rows"], METHODS) == written
    assert written in (root / "docs" / "security.md").read_text()
    lines = read_lines(root / "results" / "private")
    first = made["rows"][0]
    mine = [one for one in lines if one["setting"] == "m=1200 epsilon=1" and one["algorithm"] == "global"]
    assert first["accuracy"] == pytest.approx(sum(one["accuracy"] for one in mine) / 5)
    assert (first["epsilon"], first["noise"]) == (1, MULTIPLIERS[1, first["rounds"]])
