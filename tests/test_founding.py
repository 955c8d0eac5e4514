"""Founding and refereeing: the test by hand, the founders, and federations of every kind that must hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.cluster import AgglomerativeClustering
from torch import Tensor
from torch.func import vmap

from ifca.bench.regimes import regime_of
from ifca.core.errors import InvalidInput
from ifca.core.metrics import cluster_accuracy, distance
from ifca.core.probe import PENALTY, probe_task, solve
from ifca.core.random import key_of
from ifca.core.recipe import Recipe
from ifca.core.replies import Savings, Solutions
from ifca.core.sampling import is_aside
from ifca.core.sketch import make_sketch
from ifca.core.types import Data
from ifca.data import Federation, mixture_of_regressions, rotated_digits
from ifca.methods import founding
from ifca.methods.averaging import initial_state
from ifca.methods.founding import (
    distinct,
    founded,
    group_means,
    is_trial,
    numbered,
    own_is_best,
    points_of,
    ward,
)
from ifca.methods.groups import FREE, HELD, first_memory, memory_of, parted
from ifca.methods.ifca import IFCA
from ifca.methods.memory import tensors_of
from ifca.methods.referee import (
    Sums,
    Verdict,
    above_zero,
    added,
    averages,
    compared,
    pairs_of,
    to_merge,
    verdict,
    verdicts,
)
from ifca.models import linear, mlp
from ifca.training import Fitted, Job, fit
from ifca.training.start import problem_of, start


def sums(*differences: float) -> Sums:
    return Sums(len(differences), sum(differences), sum(d * d for d in differences))


class TestReferee:
    def test_one_model_for_both_by_hand(self) -> None:
        """Differences 1, 2, 3, 2: mean 2, variance 2/3, so t = 2 / sqrt(2/3 / 4) with 3 degrees."""
        t, p = above_zero(sums(1, 2, 3, 2))
        assert t == pytest.approx(24**0.5)
        assert p == pytest.approx(float(stats.ttest_1samp([1, 2, 3, 2], 0, alternative="greater").pvalue))

    def test_the_other_model_by_hand(self) -> None:
        """The first group loses 1, 2, 3, the second -1, 0, 2, 1: Welch's test of 1, 2, 3 and 1, 0, -2, -1."""
        t, p = above_zero(sums(1, 2, 3), sums(-1, 0, 2, 1))
        welch = stats.ttest_ind([1, 2, 3], [1, 0, -2, -1], equal_var=False, alternative="greater")
        assert (t, p) == pytest.approx((float(welch.statistic), float(welch.pvalue)))

    def test_both_tests_must_reject(self) -> None:
        """Sure that the laws differ, unsure that two models pay; and the other way round."""
        sure, unsure = sums(5, 6, 5, 6, 5, 6), sums(-1, 1, -2, 2, 0, 1)
        assert verdict((0, 1), sure, sure, sure).needs_both(0.01)
        assert not verdict((0, 1), unsure, sure, sure).needs_both(0.01)
        assert not verdict((0, 1), sure, unsure, unsure).needs_both(0.01)

    def test_that_one_model_is_ahead_for_everybody_cancels_out(self) -> None:
        """Everybody is served better by 1 or 2 with the second model: nothing tells the groups apart."""
        said = verdict((0, 1), sums(1, 2, 1, 2), sums(-1, -2, -1, -2), sums(1, 2, 1, 2))
        assert said.p == pytest.approx(0.5)
        assert said.better == "second"

    def test_the_one_model_that_costs_least(self) -> None:
        assert verdict((0, 1), sums(1, 1), sums(9, 9), sums(9, 9)).better == "average"
        assert verdict((0, 1), sums(8, 8), sums(9, 9), sums(1, 1)).better == "first"

    def test_a_factor_of_the_loss_changes_nothing(self) -> None:
        small, large = (above_zero(sums(*(f * d for d in (1, -2, 3, 2)))) for f in (1e-9, 1e9))
        assert small == pytest.approx(large)
        for f in (2.0**-300, 2.0**300):  # whose fourth powers are no numbers
            assert above_zero(sums(*(f * d for d in (1, -2, 3, 2)))) == pytest.approx(small)

    @pytest.mark.parametrize(("differences", "p"), [([], 1), ([5.0], 1), ([0.0, 0.0], 1), ([2.0] * 5, 0)])
    def test_too_few_or_all_alike(self, differences: list[float], p: float) -> None:
        assert above_zero(sums(*differences))[1] == p
        assert above_zero(Sums(3, math.nan, math.nan)) == (0, 1)
        assert above_zero(Sums(3, math.inf, math.inf)) == (0, 1)

    def test_averages_by_turns(self) -> None:
        theta = {"w": torch.tensor([0.0, 4.0, 8.0])}
        found = averages(theta, torch.tensor([3.0, 1.0, 0.0]), [(0, 1), (1, 2)])
        assert found["w"].tolist() == [1.0, 4.0]
        assert averages(theta, torch.zeros(3), [(0, 1)])["w"].tolist() == [2.0]  # nobody's turn yet

    def test_whom_a_client_judges(self) -> None:
        """Groups 1, 3, 4 are models 0, 1, 2; their averages (1, 3), (1, 4), (3, 4) are models 3, 4, 5."""
        own, others = compared([1, 3, 4], torch.tensor([3, 1, 4]))
        assert pairs_of([1, 3, 4]) == [(1, 3), (1, 4), (3, 4)]
        assert own.tolist() == [1, 0, 2]
        assert others.tolist() == [[0, 2, 3, 5], [1, 2, 3, 4], [0, 1, 4, 5]]

    def test_evidence_by_group(self) -> None:
        """Client 0 of group 0 and client 1 of group 2 speak of the pair (0, 2); client 0 also of (0, 1)."""
        total = torch.tensor([[1.0, 4.0, 5.0, 6.0], [2.0, 8.0, 7.0, 9.0]]).double()
        said = Savings(torch.tensor([2, 1]), total, torch.ones(2, 4).double())
        evidence = added(torch.zeros(2, 3, 3, 3).double(), [0, 1, 2], torch.tensor([0, 2]), said)
        other, both = evidence
        assert other[:, 0, 2].tolist() == [2, 4, 1]
        assert other[:, 2, 0].tolist() == [1, 2, 1]
        assert both[:, 0, 1].tolist() == [2, 5, 1]
        assert [one.samples for one in verdicts(evidence, [0, 1, 2])] == [2, 3, 1]
        assert verdicts(evidence, [0, 1, 2])[1].loses == pytest.approx(2 / 3)  # all to the first

    def test_each_merges_with_its_closest_only(self) -> None:
        """0 and 1 are closest to each other; 2 is closest to 1, which has a closer one."""
        said = [
            Verdict(pair, 9, 0.0, t, p)
            for pair, t, p in (((0, 1), 0.1, 0.4), ((0, 2), 9, 0), ((1, 2), 1, 0.2))
        ]
        assert [one.pair for one in to_merge(said, 0.01)] == [(0, 1)]
        assert to_merge(said[1:2], 0.01) == []


def keys_of(m: int) -> Any:
    return np.array([key_of(f"client {i}") for i in range(m)], np.uint64)


def solutions(points: Tensor) -> Solutions:
    none = torch.zeros(len(points), dtype=torch.long)
    return Solutions({"w": points[..., None]}, torch.ones(len(points), dtype=torch.bool), none, none)


def saying(more: float) -> Any:
    """Clients lose so much more, or one more than that, a sample under the first proposal."""

    def compare(_theta: Any, who: Tensor, _own: Tensor, _others: Tensor) -> Savings:
        lost = more + torch.arange(len(who)).double()[:, None] % 2
        return Savings(torch.full((len(who),), 4), 4 * lost, 4 * lost.square())

    return compare


class TestFounding:
    def test_groups_are_found_and_the_order_of_clients_does_not_matter(self) -> None:
        points = torch.tensor([[0.0], [9.0], [0.1], [9.1], [5.0]])
        keys = keys_of(5)
        group, _ = founded(solutions(points), saying(0), 3, keys, 0.01)
        order = torch.tensor([4, 2, 0, 3, 1])
        again, _ = founded(solutions(points[order]), saying(0), 3, keys[order.numpy()], 0.01)
        assert again.tolist() == group[order].tolist()
        assert group[0] == group[2] != group[1] == group[3] != group[4]

    @pytest.mark.parametrize("more", [5, -5])
    def test_the_tree_is_taken_where_clients_lose_beyond_doubt_without_it(self, more: int) -> None:
        """A cloud and two points beside it: k-means cuts the cloud, Ward's tree sets the two apart."""
        points = torch.randn(62, 40, generator=torch.Generator().manual_seed(0))
        points[60:] = points[60:] * 0.1 + 1.3
        group, said = founded(solutions(points), saying(more), 2, keys_of(62), 0.01)
        assert said is not None
        assert (set(group[60:].tolist()) & set(group[:60].tolist()) == set()) == (more > 0)
        means = group_means({"w": torch.arange(8.0)[:, None]}, torch.tensor([0] * 6 + [1] * 2))
        assert means["w"].tolist() == [[2.5], [6.5]]

    def test_equal_solutions_are_one_group(self) -> None:
        assert founded(solutions(torch.ones(6, 3)), saying(0), 4, keys_of(6), 0.01)[0].tolist() == [0] * 6

    def test_who_sent_nothing_is_in_no_group(self) -> None:
        found = solutions(torch.tensor([[0.0], [5.0], [0.1]]))
        here = torch.tensor([True, True, False])
        group, _ = founded(found._replace(answered=here), saying(0), 2, keys_of(3), 0.01)
        assert sorted(group[:2].tolist()) == [0, 1]
        assert group[2] == -1

    def test_groups_are_numbered_by_their_members(self) -> None:
        keys = np.array([30, 10, 20], np.uint64)
        assert numbered(torch.tensor([7, 7, 2]), keys).tolist() == [0, 0, 1]


class TestProbe:
    def test_by_hand(self) -> None:
        """x = 1, 1, y = 2, 4: constant 1; the penalty is 4 p. Both weights are 6 / (4 + 4 p)."""
        data = Data(torch.ones(2, 1), torch.tensor([2.0, 4.0]), torch.ones(2))
        assert solve(data, None).flatten().tolist() == pytest.approx([6 / (4 + 4 * PENALTY)] * 2)

    def test_padding_the_scale_of_features_and_few_samples_change_nothing(self) -> None:
        rng = torch.Generator().manual_seed(1)
        x, y = torch.randn(30, 4, generator=rng).double(), torch.randint(0, 3, (30,), generator=rng)
        padded = Data(torch.cat([x, x + 7]), torch.cat([y, y]), torch.cat([torch.ones(30), torch.zeros(30)]))
        w = solve(Data(x, y, torch.ones(30)), 3)
        torch.testing.assert_close(solve(padded, 3), w)
        scaled = solve(Data(1000 * x, y, torch.ones(30)), 3)
        torch.testing.assert_close(torch.cat([1000 * scaled[:-1], scaled[-1:]]), w)
        wide = torch.cat(
            [x, torch.zeros(30, 60).double()], 1
        )  # fewer samples than features: the other system
        narrow = solve(Data(x, y, torch.ones(30)), 3)
        found = solve(Data(wide, y, torch.ones(30)), 3)
        assert found.shape == (65, 3)
        torch.testing.assert_close(found[4:-1], torch.zeros(60, 3).double())
        assert narrow.shape == (5, 3)

    def test_very_long_samples(self) -> None:
        """More than 4096 features: the same 4096 for all clients, on both engines."""
        rng = torch.Generator().manual_seed(0)
        x, y = torch.randn(6, 10, 5000, generator=rng), torch.arange(10) % 3
        federation = Federation.from_arrays(list(x.numpy()), [y.numpy()] * 6, classes=3)
        job = Job(federation, Recipe(k=2, rounds=1), lambda: mlp(5000, 3, (4,)))
        loop, all_at_once = (
            replace(job, engine=name).make_engine().solve() for name in ("loop", "vectorised")
        )
        assert loop.theta["w"].shape == (6, 4097, 3)
        torch.testing.assert_close(loop.theta["w"], all_at_once.theta["w"])

    def test_its_loss(self) -> None:
        """w'x + 1 = 3 against the second of two classes, less their mean: (3.5, 2.5) squared."""
        task = probe_task(2)
        output = task.output({"w": torch.tensor([[2.0, 2.0], [1.0, 1.0]])}, torch.ones(1, 1))
        assert task.loss(output, torch.tensor([1])).tolist() == [3.5**2 + 2.5**2]

    def test_engines_solve_alike(self) -> None:
        job = digits_job(rotated_digits(samples=100))
        loop, all_at_once = (
            replace(job, engine=name).make_engine().solve() for name in ("loop", "vectorised")
        )
        torch.testing.assert_close(loop.theta["w"], all_at_once.theta["w"])


def test_one_sample_in_five_is_set_aside() -> None:
    sizes = np.array([1, 2, 9, 10, 100])
    aside = np.split(is_aside(0, keys_of(5), sizes), np.cumsum(sizes)[:-1])
    assert [int(rows.sum()) for rows in aside] == [0, 1, 1, 2, 20]
    kept, held = rotated_digits(samples=50).train.parted(3)
    assert set(kept.sizes.tolist()) == {40}
    assert set(held.sizes.tolist()) == {10}
    whole = rotated_digits(samples=50).train
    both = torch.cat(
        [kept.one(3, torch.device("cpu"), torch.float32).x, held.one(3, torch.device("cpu"), torch.float32).x]
    )
    mine = whole.one(3, torch.device("cpu"), torch.float32).x
    assert sorted(map(tuple, both.flatten(1).tolist())) == sorted(map(tuple, mine.flatten(1).tolist()))


def test_engines_compare_alike() -> None:
    """The loop, client by client, and all clients at once."""
    federation = rotated_digits(samples=100)
    job = digits_job(federation)
    theta = problem_of(job).draw(0, 0)
    who, own = torch.tensor([3, 0, 7, 20]), torch.tensor([0, 1, 1, 3])
    others = torch.tensor([[1, 2], [0, 2], [3, 0], [2, 2]])
    loop, all_at_once = (
        replace(job, engine=name).make_engine().compare(theta, who, own, others)
        for name in ("loop", "vectorised")
    )
    assert loop.samples.tolist() == all_at_once.samples.tolist() == [20] * 4
    torch.testing.assert_close(loop.total, all_at_once.total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loop.square, all_at_once.square, rtol=1e-5, atol=1e-5)
    assert float(loop.total[3, 0]) == float(loop.total[3, 1])


def test_a_sketch_keeps_distances() -> None:
    rng = torch.Generator().manual_seed(0)
    updates = {"w": torch.randn(30, 8, 5, 2, generator=rng), "b": torch.randn(30, 8, generator=rng)}
    sketch = make_sketch(updates, 0, width=2000)
    flat = torch.cat([value.flatten(1) for value in updates.values()], dim=1)
    got = torch.pdist(sketch.of(updates)) / 2000**0.5
    assert float((got / torch.pdist(flat) - 1).abs().max()) < 0.2
    for n in (4, 40):  # not formed, and formed
        signal, x = torch.randn(3, n, 8, generator=rng), torch.randn(3, n, 10, generator=rng)
        formed = torch.einsum("cna,cnb->cab", signal, x)
        torch.testing.assert_close(
            sketch.outer("w", signal, x), sketch.part("w", formed), rtol=1e-4, atol=1e-4
        )


def digits_job(federation: Federation, **options: Any) -> Job:
    recipe = Recipe(**{"k": 4, "rounds": 25, "evaluate_every": 0, **options})
    return Job(federation, recipe, lambda: mlp(64, 10, (100,)))


def recovered(fitted: Fitted) -> bool:
    true = fitted.job.federation.train.true_cluster
    assert true is not None
    live = len(set(fitted.labels.tolist()))
    return live == len(set(true.tolist())) and cluster_accuracy(true, fitted.labels.numpy()) == 1


@pytest.mark.parametrize("seed", [1, 16])
def test_seeds_that_plain_ifca_loses(seed: int) -> None:
    federation = rotated_digits(seed=seed)
    assert not recovered(fit(digits_job(federation, algorithm="ifca-plain", seed=seed, rounds=60)))
    assert recovered(fit(digits_job(federation, seed=seed)))


@pytest.mark.parametrize(
    "options",
    [
        {"participation": 0.15, "rounds": 60},
        {"option": "gradient", "step_size": 2.0, "rounds": 40},
        {"shared": ("fc1",), "participation": 0.3, "rounds": 60},
        {"local_epochs": 2, "batch_size": 10},
        {"stable_after": 2, "recheck_every": 5},
    ],
)
def test_all_clusters_in_every_way_of_training(options: dict[str, Any]) -> None:
    assert recovered(fit(digits_job(rotated_digits(samples=100), **options)))


def test_more_clusters_than_there_are() -> None:
    fitted = fit(digits_job(rotated_digits(), k=6))
    assert recovered(fitted)
    assert int(fitted.state.live.sum()) == len(fitted.places) == 4


def test_fewer_clusters_than_there_are() -> None:
    fitted = fit(digits_job(rotated_digits(), k=2))
    assert len(set(fitted.labels.tolist())) == 2


def test_uneven_populations() -> None:
    whole = rotated_digits()
    few = {90: 12, 180: 5, 270: 5}
    keep = [
        i
        for i, name in enumerate(whole.train.ids)
        if int(name.split("-")[1]) < few.get(int(name.split("-")[0]), 99)
    ]
    fitted = fit(digits_job(Federation(whole.train.subset(keep), None, 10)))
    assert recovered(fitted)
    assert sorted(torch.bincount(fitted.labels).tolist()) == [5, 5, 12, 28]


@pytest.mark.parametrize("options", [{}, {"option": "gradient", "step_size": 0.5, "rounds": 100}])
def test_no_clusters_at_all(options: dict[str, Any]) -> None:
    federation = rotated_digits(angles=(0, 0, 0, 0))
    ours = fit(digits_job(federation, **options))
    all_together = fit(digits_job(federation, algorithm="global", **options))
    assert len(set(ours.labels.tolist())) == 1
    assert ours.test is not None
    assert all_together.test is not None
    accuracy = all_together.test.accuracy(all_together.test.paper_rule)
    assert accuracy is not None
    assert (ours.test.accuracy(ours.test.paper_rule) or 0) > accuracy - 0.02


@pytest.mark.parametrize("seed", range(3))
def test_mixture_of_regressions_from_one_start(seed: int) -> None:
    federation, star = mixture_of_regressions(
        clients=80, samples=40, dimension=100, clusters=4, separation=0.5, noise=0.1, seed=seed
    )
    recipe = Recipe(k=4, rounds=100, option="gradient", step_size=1.0, initial="bernoulli", seed=seed)
    fitted = fit(Job(federation, recipe, lambda: linear(100)))
    assert distance(fitted.state.theta, {"fc1.weight": star[:, None, :]}) < 0.06


def events(fitted: Fitted) -> list[str]:
    return [event["event"] for record in fitted.history for event in record["events"]]


def test_a_tenth_of_the_clients_in_a_round() -> None:
    for seed in (3, 7):
        fitted = fit(digits_job(rotated_digits(seed=seed), participation=0.1, rounds=60, seed=seed))
        assert recovered(fitted)


def test_small_clients_of_one_population() -> None:
    fitted = fit(digits_job(rotated_digits(samples=20, angles=(0,), seed=1), seed=1))
    assert len(set(fitted.labels.tolist())) == 1


def permuted(federation: Federation, ways: int) -> Federation:
    """Client i answers with its labels shifted by 3 (i mod ways)."""
    x, y = zip(*[federation.train.arrays(i) for i in range(len(federation.train))], strict=True)
    shift = [3 * (i % ways) for i in range(len(x))]
    answers = [(labels + add) % 10 for labels, add in zip(y, shift, strict=True)]
    return Federation.from_arrays(x, answers, clusters=shift, classes=10)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_population_of_few_clients_and_many_groups(seed: int) -> None:
    """Networks that trained far apart: their average is bad, but nothing tells the groups apart."""
    federation = rotated_digits(samples=100, angles=(0,), seed=seed)
    fitted = fit(digits_job(federation, k=10, rounds=15, step_size=0.3, seed=seed))
    assert len(set(fitted.labels.tolist())) == 1


@pytest.mark.parametrize(("m", "ways", "samples"), [(2, 2, 200), (6, 3, 200), (12, 4, 100)])
def test_few_clients(m: int, ways: int, samples: int) -> None:
    """Hospitals: what 2, 6 and 12 clients can tell, they tell."""
    whole = rotated_digits(samples=samples, angles=(0, 0))
    some = Federation(whole.train.subset(range(m)), None, 10)
    fitted = fit(digits_job(permuted(some, ways), k=min(m, 4)))
    assert recovered(fitted)
    alike = fit(digits_job(some, k=min(m, 4)))
    assert len(set(alike.labels.tolist())) == 1


@pytest.mark.parametrize("y", [torch.zeros(0), torch.zeros(0, 2)])
def test_a_regressions_client_that_sets_nothing_aside(y: Tensor) -> None:
    """One sample: it has none to compare solutions by."""
    outputs = torch.zeros(0, max(1, y.shape[-1] if y.dim() > 1 else 1))
    assert probe_task(None).loss(outputs, y).shape == (0,)


def test_more_clusters_asked_for_than_clients() -> None:
    whole = rotated_digits(samples=200, angles=(0, 180))
    fitted = fit(digits_job(Federation(whole.train.subset([0, 7]), None, 10), k=5))
    assert sorted(fitted.labels.tolist()) == [0, 1]


def test_the_first_rounds_do_not_depend_on_how_many_follow() -> None:
    federation = rotated_digits(samples=100)
    short, long = (fit(digits_job(federation, rounds=rounds, evaluate_every=1)) for rounds in (9, 18))
    for one, other in zip(short.history, long.history, strict=False):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


@pytest.mark.parametrize("angles", [(0, 90, 180, 270), pytest.param((0, 0, 0, 0), marks=pytest.mark.slow)])
def test_a_constant_added_to_the_loss_changes_no_decision(angles: tuple[int, ...]) -> None:
    def shifted(constant: float) -> Any:
        def loss(output: Tensor, y: Tensor) -> Tensor:
            return torch.nn.functional.cross_entropy(output, y, reduction="none") + constant

        return loss

    job = replace(digits_job(rotated_digits(angles=angles), rounds=20), precision="float64")
    zero, hundred, below = (fit(replace(job, loss=shifted(constant))) for constant in (0, 100, -7))
    assert events(zero) == events(hundred) == events(below)
    assert zero.labels.tolist() == hundred.labels.tolist() == below.labels.tolist()


@pytest.mark.parametrize("clusters", [1, 2])
def test_a_gaussian_likelihood(clusters: int) -> None:
    """Losses below zero: the negative log-likelihood with a small variance."""

    def likelihood(output: Tensor, y: Tensor) -> Tensor:
        return (output.reshape(y.shape) - y).square() / 0.02 + math.log(0.01) / 2

    federation, _ = mixture_of_regressions(
        clients=40, samples=40, dimension=10, clusters=clusters, separation=1.0, noise=0.1, seed=5
    )
    recipe = Recipe(k=4, rounds=30, step_size=0.0005, evaluate_every=0)
    fitted = fit(Job(federation, recipe, lambda: linear(10), loss=likelihood))
    assert fitted.train_loss < 0
    assert len(set(fitted.labels.tolist())) == clusters


def test_clients_are_held_and_let_go() -> None:
    """Clear groups: nobody would choose another model in the first trial, so all are free from then on."""
    assert [t for t in range(20) if is_trial(t)] == [4, 8, 16]
    fitted = fit(digits_job(rotated_digits(samples=100), rounds=6))
    assert events(fitted) == ["kept", "free"]
    sent = [record["sent_all_models"] for record in fitted.history]
    m = len(fitted.job.federation.train)
    assert sent == [0] * 4 + [m] * 2
    assert memory_of(fitted.state).stage == FREE
    held = fit(digits_job(rotated_digits(samples=100), rounds=4))
    assert memory_of(held.state).stage == HELD
    assert held.labels.tolist() == held.state.identity.tolist()


def test_clients_that_groups_were_parted_around_are_let_go() -> None:
    """Uneven sizes, and more places than laws: some small clients choose another model than their group's.

    Groups are parted after 16 rounds; trials 16 and 32 rounds later find as many of them, so they are free.
    """
    job = regime_of("digits-sizes").job(1003)
    job = replace(job, recipe=replace(job.recipe, algorithm="ifca", k=8, rounds=50))
    fitted = fit(job)
    told = [(record["round"], event["event"]) for record in fitted.history for event in record["events"]]
    assert [one for one in told if one[1] in ("parted", "free")] == [(15, "parted"), (48, "free")]
    assert memory_of(fitted.state).stage == FREE
    short = fit(replace(job, recipe=replace(job.recipe, rounds=40)))
    assert memory_of(short.state).stage == HELD
    assert short.labels.tolist() != short.state.identity.tolist()  # they choose at the end
    assert short.labels.tolist() == short.train.loss.argmin(1).tolist()


def test_held_clients_choose_at_the_end_where_every_model_serves_its_own_best() -> None:
    """Client 1 of three was given model 0 and loses less with model 1; client 3 did not answer."""
    losses = torch.tensor([[1.0, 2.0], [2.5, 2.4], [5.0, 4.0], [math.nan, math.nan]])
    held = torch.tensor([0, 0, 1, 1])
    theta = {"w": torch.zeros(2, 1)}
    memory = replace(first_memory(held, 2), stage=HELD)
    state = replace(initial_state(theta, held), memory=tensors_of(memory))
    assert IFCA.serves(state, losses)[:3].tolist() == [0, 1, 1]
    better = losses - torch.tensor([0.0, 1.0])  # model 1 is now the best for both groups
    assert IFCA.serves(state, better)[:3].tolist() == [0, 0, 1]


def test_who_was_not_heard_before_a_parting_keeps_its_model() -> None:
    """Models 0 and 2 are copies: to choose between them would be to ask the last bit of a sum."""
    identity, group = torch.tensor([0, 0, 1, 0]), torch.tensor([0, 2, 1, -1])
    state = initial_state({"w": torch.zeros(3, 1)}, identity, torch.tensor([True, True, False]))
    state = replace(state, round=16)
    after, _ = parted(state, first_memory(identity, 3), group)
    assert after.identity.tolist() == [0, 2, 1, 0]
    who = torch.tensor([1, 3])
    assert IFCA.sends(Recipe(k=3), after, who).tolist() == [2, 0]
    assert IFCA.sends(Recipe(k=3), replace(after, round=17), who).tolist() == [2, -1]


def test_every_model_serves_its_own_best() -> None:
    losses = torch.tensor([[1.0, 2.0], [3.0, 2.0], [5.0, 4.0]])
    assert own_is_best([0, 1], torch.tensor([0, 1, 1]), losses)
    assert not own_is_best([0, 1], torch.tensor([0, 0, 1]), losses + torch.tensor([[0.0, -1.0]]))


@pytest.mark.parametrize("options", [{"rounds": 3}, {"rounds": 9}, {"participation": 0.1, "rounds": 15}])
def test_what_is_not_decided_when_the_rounds_end_is_decided_then(options: dict[str, Any]) -> None:
    """One population, ten groups: the referee had no time for it in the rounds."""
    job = digits_job(rotated_digits(samples=100, angles=(0,)), k=10, evaluate_every=1, **options)
    fitted = fit(job)
    assert len(set(fitted.labels.tolist())) == len(fitted.places) == 1
    assert sum(record["bytes_down"] for record in fitted.history) == int(fitted.state.bytes_down.sum())
    long = fit(replace(job, recipe=replace(job.recipe, rounds=job.recipe.rounds + 1)))
    before = [{**record, "seconds": 0} for record in fitted.history]
    longer = [{**record, "seconds": 0} for record in long.history[:-1]]
    assert before[:-1] == longer[:-1]
    for name in ("identity", "clients", "train_loss", "cluster_sizes"):  # then the end decides what is open
        assert before[-1][name] == longer[-1][name]


def test_the_founding_and_the_referee_are_paid_for() -> None:
    """Before round 0 a ridge regression up; after it the four models and three averages down, once more."""
    job = digits_job(rotated_digits(samples=100), rounds=2)
    history = fit(job).history
    model, probe, m = 4 * (64 * 100 + 100 + 100 * 10 + 10), 4 * (64 * 10 + 10), len(job.federation.train)
    assert history[0]["bytes_down"] == m * (1 + 7) * model
    assert history[0]["bytes_up"] == m * (model + 4 + 4 + probe + 4 + 16 * 6)
    assert history[1]["bytes_down"] == m * model


def test_a_run_of_an_older_version_is_not_gone_on_with() -> None:
    state = start(digits_job(rotated_digits(samples=100)))
    with pytest.raises(InvalidInput, match="another version"):
        memory_of(replace(state, memory={"sketch": torch.zeros(1)}))


def test_a_warm_start_is_a_founding() -> None:
    """Two given models take the first of four places, and clients choose among them from the first round."""
    job = digits_job(rotated_digits(), rounds=1, shared=("fc1",))
    given = {name: value[:2] for name, value in problem_of(job).draw(0, 0).items()}
    state = start(replace(job, warm_start=given))
    assert state.live.tolist() == [True, True, False, False]
    assert state.identity.tolist() == [-1] * problem_of(job).m
    assert len(fit(replace(job, warm_start=given)).places) == 2
    with pytest.raises(InvalidInput, match=r"holds 2 model\(s\) but k is 4"):
        start(replace(job, warm_start=given, recipe=replace(job.recipe, algorithm="ifca-plain")))


def test_many_clients_solve_with_any_number_of_threads() -> None:
    """MKL's batched LU gave up here once torch.set_num_threads had been called."""
    rng, before = np.random.default_rng(0), torch.get_num_threads()
    x = torch.from_numpy(rng.random((15, 400, 500)))
    data = Data(x, torch.from_numpy(rng.integers(0, 10, (15, 400))), torch.ones(15, 400, dtype=torch.float64))
    alone = solve(Data(*(part[3] for part in data)), 10)
    try:
        torch.set_num_threads(2)
        torch.testing.assert_close(vmap(lambda one: solve(one, 10))(data)[3], alone)
    finally:
        torch.set_num_threads(before)


def test_of_very_many_clients_some_found_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of 14 clients are put into groups, by their keys; the others join the nearest."""
    federation = rotated_digits(samples=200, angles=(0, 180))
    solutions, keys = digits_job(federation).make_engine().solve(), federation.train.keys

    def never(*_: object) -> Any:
        raise AssertionError("the proposals agree")

    monkeypatch.setattr(founding, "FOUNDERS", 6)
    some, said = founded(solutions, never, 2, keys, 0.01)
    assert said is None
    assert federation.train.true_cluster is not None
    assert cluster_accuracy(federation.train.true_cluster, some.numpy()) == 1


def test_how_many_points_differ() -> None:
    points = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0], [4.0, 2.0]])
    assert [distinct(points, most) for most in (1, 2, 3, 4, 9)] == [1, 2, 3, 3, 3]
    assert distinct(points[:2], 5) == 1


def test_points_have_the_distances_of_the_models() -> None:
    """Also of models that are all alike, and of clients that are the same."""
    rng = np.random.default_rng(0)
    models = torch.from_numpy(rng.normal(5.0, 1.0, (12, 300)))
    models[7] = models[3]
    points, products = points_of(models)
    assert products is not None
    torch.testing.assert_close(points @ points.t(), products)
    assert points.shape == (12, 12)
    torch.testing.assert_close(torch.cdist(points, points), torch.cdist(models, models), rtol=1e-6, atol=1e-4)
    assert points_of(models[:1].expand(4, -1))[0].shape == (4, 4)
    assert points_of(models[:, :12])[1] is None  # they are no more numbers than models already


def test_ward_s_tree_is_scikit_learn_s() -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(60, 5)) + 3 * rng.integers(0, 3, (60, 1))
    keys = rng.integers(0, 2**63, 60).astype(np.uint64)
    points -= points.mean(0)
    theirs = torch.from_numpy(AgglomerativeClustering(4).fit_predict(points))
    assert torch.equal(ward(torch.from_numpy(points @ points.T), 4, keys), numbered(theirs, keys))
