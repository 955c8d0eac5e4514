"""The units of the paper's experiments at a size of seconds, and the statistics of their lines."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch

from ifca.core.initial import is_balanced
from ifca.core.random import generator
from ifca.core.recipe import Recipe
from ifca.core.sampling import participants
from ifca.data import Federation, mixture_of_regressions, rotated_digits
from ifca.data.public.rotated import Images, rotated
from ifca.models import mlp
from ifca.paper import cluster_accuracy as identities
from ifca.paper import (
    collapses,
    communication,
    initialisation,
    jobs,
    panels,
    success,
    table1_cifar,
    table1_mnist,
    table2_femnist,
    theory_convex,
    theory_linear,
)
from ifca.paper.experiments import run_unit_of
from ifca.paper.statistics import line_through, mean_std, power_law, wilson
from ifca.runs.units.execute import run_unit
from ifca.runs.units.unit import Line, Unit
from ifca.training import Job, fit
from ifca.training.start import drawn_models

CPU = torch.device("cpu")


def images(count: int, shape: tuple[int, ...], seed: int) -> Images:
    """Noise around a pattern for each class, brighter at the top: a rotation can be told."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, count)
    pattern = np.random.default_rng(0).integers(0, 120, (10, *shape))
    top = np.linspace(130, 0, shape[-2])[:, None]
    return Images(
        (pattern[y] + top + rng.integers(0, 6, (count, *shape))).astype(np.uint8), y.astype(np.int64)
    )


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every recipe at a size of seconds: few clients, images of noise, few rounds; the code is the same."""
    pair = {shape: (images(120, shape, 1), images(40, shape, 2)) for shape in ((28, 28), (3, 32, 32))}
    monkeypatch.setattr(jobs, "_mnist", lambda: pair[28, 28])
    monkeypatch.setattr(jobs, "_cifar", lambda: pair[3, 32, 32])
    jobs._rotated_mnist.cache_clear()
    jobs._rotated_cifar.cache_clear()
    for module in (table1_mnist, identities):
        monkeypatch.setattr(module, "SHARE", 3000)
    monkeypatch.setattr(table1_mnist, "QUICK", {"tiny": 10})
    monkeypatch.setattr(identities, "QUICK", {"tiny": 10})
    monkeypatch.setattr(table1_mnist, "QUICK_ROUNDS", 4)
    monkeypatch.setattr(identities, "ROUNDS", 4)
    monkeypatch.setattr(initialisation, "ROUNDS", {initialisation.DIGITS: 2})
    monkeypatch.setattr(initialisation, "RESTARTS", (1, 2))


def done(name: str, setting: str, algorithm: str, quick: bool = True) -> Line:
    return run_unit(Unit(name, setting, algorithm, 0, quick), run_unit_of, "cpu")


@pytest.mark.usefixtures("tiny")
def test_units_of_rotated_mnist_and_of_cluster_accuracy() -> None:
    lines = {a: done("rotated-mnist", "tiny", a) for a in table1_mnist.ROWS}
    for line in lines.values():
        assert 0 <= line["test_accuracy"] <= 1
        assert line["quick"] is True
        assert {"seconds", "device", "versions"} <= line.keys()
    assert lines["local"]["steps"] == 40
    assert lines["local-100"]["steps"] == 100
    assert lines["ifca"]["accuracy_by_round"][-1][0] == 4
    assert sum(lines["ifca-plain"]["sizes"]) == 8
    assert "bytes" in lines["global"]
    assert "live_clusters" not in lines["global"]
    line = done("cluster-accuracy", "tiny", "ifca")
    assert len(line["cluster_accuracy_by_round"]) == 4
    assert ("rounds_until_right" in line) == line["all_right"]


def test_the_round_from_which_all_are_right() -> None:
    def history(*shares: float) -> list[dict[str, Any]]:
        return [{"round": t, "cluster_accuracy": share} for t, share in enumerate(shares)]

    assert identities.first_right(history(0.5, 1, 0.9, 1, 1)) == 4
    assert identities.first_right(history(1, 1)) == 1


def test_local_mnist_models_are_those_of_an_ordinary_run() -> None:
    """Tested on all test data of their own rotation; local_scores never forms them, a run does."""
    federation = rotated(images(40, (6, 6), 1), images(20, (6, 6), 2), samples=10, angles=(0, 180), seed=3)
    recipe = Recipe(algorithm="local", rounds=3, local_steps=2, evaluate_every=0)
    job = Job(federation, recipe, lambda: mlp(36, 10, (8,)))
    theta, tests, shares = fit(job).state.theta, federation.test, []
    assert tests is not None
    assert tests.true_cluster is not None
    assert federation.train.true_cluster is not None
    for i, true in enumerate(federation.train.true_cluster):
        rows = [int(p) for p in np.flatnonzero(tests.true_cluster == true)]
        one = {name: value[i : i + 1] for name, value in theta.items()}
        scores = job.make_engine().score(one, tests.subset(rows))
        shares.append(float(scores.correct.sum()) / 20)
    assert table1_mnist.local(job)["test_accuracy"] == pytest.approx(np.mean(shares), abs=1e-6)


@pytest.mark.usefixtures("tiny")
def test_local_cifar_models_by_both_rules() -> None:
    """In parts or whole: the same models; the authors' rule is half fair, half the other rotation's."""
    job = jobs.cifar(0, 2, clients=4, test_clients=4, samples=10)
    job = replace(job, recipe=replace(job.recipe, local_epochs=1, batch_size=5, participation=0.5))
    job = table1_cifar.local_job(replace(job, model=lambda: mlp(3072, 10, (4,)), recipe=_plain(job.recipe)))
    assert job.recipe.rounds == 1
    assert job.recipe.step_decay == pytest.approx(0.99**2)
    whole = table1_cifar.local(job)
    rule = (whole["test_accuracy"] + whole["test_accuracy_other_rotation"]) / 2
    assert whole["test_accuracy_authors_rule"] == pytest.approx(rule)
    assert table1_cifar.PART > 4
    table1_cifar.PART, part = 3, table1_cifar.PART
    try:
        assert table1_cifar.local(job) == whole
    finally:
        table1_cifar.PART = part


def _plain(recipe: Recipe) -> Recipe:
    """Without what only the convolutional network has."""
    return replace(recipe, augment=False, l2=0.0, l2_layers=())


@pytest.mark.usefixtures("tiny")
def test_a_unit_of_the_full_cifar_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The authors' network with crops and redrawn starts; one round of four clients."""
    small = jobs.cifar(0, 1, clients=4, test_clients=4, samples=10)
    small = replace(small, recipe=replace(small.recipe, local_epochs=1, participation=1.0))
    monkeypatch.setattr(table1_cifar, "_job", lambda _unit: small)
    line = done("rotated-cifar", "m=200 n=500", "ifca-plain", quick=False)
    assert min(line["sizes"]) >= 0
    assert line["rounds"] == 1
    assert "quick" not in line


def test_units_of_femnist(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = images(90, (28, 28), 1), images(30, (28, 28), 2)
    x, y = np.split(train.x, 6), np.split(train.y, 6)
    data = Federation.from_arrays(x, y, np.split(test.x, 6), np.split(test.y, 6), classes=62)
    monkeypatch.setattr(jobs, "_femnist", lambda: data)
    monkeypatch.setattr(table2_femnist, "QUICK_WRITERS", 5)
    monkeypatch.setattr(table2_femnist, "QUICK_ROUNDS", 3)
    monkeypatch.setattr(jobs, "WRITERS", 2)
    for setting, algorithm in (("k=2", "ifca"), ("k=2", "oneshot"), ("baselines", "global")):
        line = done("femnist", setting, algorithm)
        assert 0 <= line["test_accuracy_train_rule"] <= line["test_accuracy"] <= 1
        assert line["best_test_accuracy"] >= line["test_accuracy"]
    own = done("femnist", "baselines", "local")
    assert own["test_accuracy"] == own["test_accuracy_train_rule"]
    assert own["train_loss"] < line["train_loss"]  # many epochs alone, three rounds together


def test_a_trial_of_a_panel_and_its_points() -> None:
    """Easy: few dimensions, many samples. Steps that diverge do not count; the threshold is the paper's."""
    point = panels.Point(20, 50, 1.0, 0.1, "sigma=0.1 R=1")
    panel = panels.Panel(2, (point,), (0.5, 1e6), (), 0.5, dimension=5, starts=6, rounds=60)
    ((found, best),) = success.trial(panel, 0, CPU)
    assert found is point
    assert best <= point.threshold == pytest.approx(0.06)
    assert success.by_default(panel, point, 0, CPU)["success"] is True
    diverging = replace(panel, steps=(1e6,), starts=1)
    assert next(success.trial(diverging, 0, CPU))[1] == float("inf")
    assert panels.Point(1, 1, 1.0, 0.0, "").threshold == 0.001


def test_the_largest_step_that_converges_is_tried_first() -> None:
    # k = 2, d = 1000: L of a cluster is (1 + sqrt(2 d / (m n)))^2, 2.09 at m n = 10,000 and 1.73 at 20,000
    panel = panels.panels(quick=False)["synthetic-c"]
    assert panel.largest_step(100, 100) == 0.1
    assert panel.largest_step(200, 100) == 1.0
    assert panel.largest_step(1, 1) == 0.01  # none converges
    assert panels.panels(quick=False)["synthetic-b"].largest_step(400, 100) == 2.0


@pytest.mark.slow
def test_a_trial_that_ends_at_its_first_success_finds_what_all_starts_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    panel = panels.panels(quick=True)["synthetic-c"]
    panel = replace(panel, points=tuple(point for point in panel.points if point.m in (14, 20)))
    found = [dict(success.trial(panel, seed, CPU)) for seed in range(3)]
    succeeded = [[best <= point.threshold for point, best in trial.items()] for trial in found]
    assert {one for trial in succeeded for one in trial} == {True, False}
    monkeypatch.setattr(panels.Point, "threshold", -1.0)  # nothing succeeds: every start and step is tried
    every = [dict(success.trial(panel, seed, CPU)) for seed in range(3)]
    monkeypatch.undo()
    assert [[best <= point.threshold for point, best in trial.items()] for trial in every] == succeeded


def test_a_trial_draws_the_data_of_mixture_of_regressions() -> None:
    data, star = mixture_of_regressions(
        clients=4, samples=3, dimension=5, clusters=2, separation=0.7, noise=0.2, seed=3
    )
    x = torch.randn((4, 3, 5), generator=generator(3, "train-x"))
    eps = torch.randn((4, 3), generator=generator(3, "train-noise"))
    half = torch.full((2, 5), 0.5)
    mine = 0.7 * torch.bernoulli(half, generator=generator(3, "theta-star"))
    torch.testing.assert_close(star, mine)
    torch.testing.assert_close(data.train.x.view(4, 3, 5), x)
    cluster = torch.tensor([0, 0, 1, 1])
    y = torch.einsum("mnd,md->mn", x, mine[cluster]) + 0.2 * eps
    torch.testing.assert_close(data.train.y.view(4, 3), y)


def test_panels_have_the_papers_points() -> None:
    sizes = {name: len(panel.points) for name, panel in panels.panels(quick=False).items()}
    assert sizes == {"synthetic-a": 20, "synthetic-b": 20, "synthetic-c": 21, "synthetic-d": 15}
    line = {"setting": success.TRIAL, "algorithm": "ifca-plain", "seed": 0, "seconds": 4.0}
    line |= {"distance": {"a": 0.05, "b": None}, "threshold": {"a": 0.06, "b": 0.06}}
    assert [(x["setting"], x["success"], x["seconds"]) for x in success.spread(line)] == [
        ("a", True, 2.0),
        ("b", False, 2.0),
    ]


def test_theory_on_known_numbers() -> None:
    """Exponents of exact power laws; an identity error that is exactly normal."""
    lines = [
        {"setting": f"m={m}", "algorithm": "ifca-plain", "seed": seed, "floor": 3 * m**-0.5, "seconds": 1.0}
        for m in (10, 20, 40)
        for seed in range(2)
    ]
    (row,) = theory_linear.derived(lines)
    assert row["mean"] == pytest.approx(-0.5)
    assert row["interval"] == pytest.approx([-0.5, -0.5])
    assert row["paper_mean"] == -0.5
    assert row["seeds"] == [0, 1]
    errors = {str(n): NormalDist().cdf(-((2 * 0.05 * n) ** 0.5)) for n in (8, 16, 32)}
    assert theory_linear.rate(errors) == pytest.approx(0.05, rel=1e-3)
    assert theory_linear.rate({"4": 0.0, "8": 0.0, "16": 0.0}) is None


def test_theory_units_contract_to_a_floor() -> None:
    line = theory_linear.trained(theory_linear.Base(d=5, m=10, n=20), seed=0)
    assert line["contraction"] == pytest.approx(0.5, abs=0.05)
    assert line["floor"] < 0.05 * line["distance_by_round"][0]
    convex = theory_convex.trained(theory_convex.Base(m=20, n=40), seed=0)
    assert convex["floor"] < 0.5 * convex["distance_by_round"][0]
    assert 0 < theory_convex.shrunk() < 1
    wrong = theory_linear.wrong_identities("alpha=0.4 rho=1", seed=0)["errors"]
    assert wrong["32"] < wrong["4"] < 0.5


def test_the_minimiser_known_by_quadrature_is_the_minimiser() -> None:
    """The gradient of the regularised loss over many samples vanishes there."""
    true = theory_convex.directions(1, seed=0)[0].double()
    x = torch.randn(400_000, theory_convex.DIMENSION, generator=generator(0, "x"), dtype=torch.double)
    star = theory_convex.shrunk() * true
    slope = ((x @ star).sigmoid() - (x @ true).sigmoid()) @ x / len(x) + theory_convex.L2 * star
    assert slope.norm() < 0.005


@pytest.mark.usefixtures("tiny")
def test_units_of_initialisation_and_communication() -> None:
    line = done("initialisation", initialisation.DIGITS, "restarts")
    first, best = initialisation.spread(line)
    assert (first["algorithm"], best["algorithm"]) == ("ifca-plain", "ifca-plain, best of 2 starts")
    assert best["train_loss"] == min(start["train_loss"] for start in line["starts"])
    assert "all_right" in done("initialisation", initialisation.DIGITS, "ifca")
    curve = [(100, 0.5), (200, 0.85), (300, 0.8)]
    assert communication.bytes_to(0.8, curve) == 200
    assert communication.bytes_to(0.9, curve) is None


def test_units_of_collapse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotated Digits and the synthetic point, as the quick version has them but for fewer rounds."""
    small, few = jobs.digits(0, rounds=12), panels.panels(quick=True)["synthetic-b"]
    setting = replace(collapses.SETTINGS[collapses.DIGITS], job=lambda _seed: small)
    monkeypatch.setitem(collapses.SETTINGS, collapses.DIGITS, setting)
    lines = [done("collapse", collapses.DIGITS, algorithm) for algorithm in collapses.PAIR]
    for line in lines:
        assert line["success"] == line["all_right"]
        assert {"bytes", "turns", "versions", "test_accuracy_train_rule"} <= line.keys()
    monkeypatch.setattr(collapses, "panels", lambda _quick: {"synthetic-b": replace(few, rounds=60)})
    found = done("collapse", collapses.SYNTHETIC, "ifca")
    point = next(point for point in few.points if point.name == collapses.POINT)
    assert found["success"] == (found["distance"] <= point.threshold)
    _, ours = collapses.compared(lines)
    assert ours["bytes_ratio"] == pytest.approx(lines[1]["bytes"] / lines[0]["bytes"])
    assert ours["turns_ratio"] >= 1


def test_collapses_that_are_judged_against_the_global_model() -> None:
    def line(setting: str, algorithm: str, accuracy: float, live: int = 2, seed: int = 0) -> Line:
        both = dict.fromkeys(("test_accuracy", "test_accuracy_train_rule"), accuracy)
        costs = {"bytes": 1, "turns": 1, "live_clusters": live}
        return {"setting": setting, "algorithm": algorithm, "seed": seed, **both, **costs}

    def verdicts(*lines: Line) -> list[bool | None]:
        return [found.get("success") for found in collapses.compared(list(lines))]

    whole = line("femnist", "global", 0.86)
    assert verdicts(whole, line("femnist", "ifca", 0.87)) == [None, True]
    assert verdicts(whole, line("femnist", "ifca", 0.86)) == [None, False]
    assert verdicts(whole, line("femnist", "ifca", 0.87, live=1)) == [None, False]
    assert verdicts(whole, line("femnist", "ifca", 0.87, seed=1)) == [None, None]  # of another seed
    whole = line("mnist not rotated", "global", 0.9)
    assert verdicts(line("mnist not rotated", "ifca", 0.898, live=1), whole) == [True, None]
    assert verdicts(line("mnist not rotated", "ifca-plain", 0.896), whole) == [False, None]


def test_savings_save_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    small = jobs.digits(0, rounds=8)
    monkeypatch.setattr(jobs, "digits", lambda _seed, rounds: small)
    settings = ("k models", "stable identities", "weight sharing", "k=8 asked")
    sent = {s: done("communication", s, "ifca-plain")["bytes"] for s in settings}
    assert sent["weight sharing"] < sent["k models"] < sent["k=8 asked"]
    assert sent["stable identities"] <= sent["k models"]


def test_balanced_starts() -> None:
    """All k models drawn again until each is chosen by 35% of the first round's clients."""
    assert is_balanced(torch.tensor([0, 0, 1, 1]), 2)
    assert not is_balanced(torch.tensor([0, 0, 0, 1]), 2)
    assert not is_balanced(torch.tensor([0, 0, 1, 1]), 3)
    federation = rotated_digits(samples=50, angles=(0, 180))
    recipe = Recipe(algorithm="ifca-plain", k=2, rounds=1, participation=0.4, initial="balanced")
    job = Job(federation, recipe, lambda: mlp(64, 10, (20,)))
    (record,) = fit(job).history
    assert min(record["cluster_sizes"]) >= 0.35 * record["participants"]
    unlucky = next(s for s in range(50) if not _first_is_balanced(job, s))
    job = replace(job, recipe=replace(recipe, seed=unlucky))
    plain = fit(replace(job, recipe=replace(job.recipe, initial="random"))).history[0]
    assert min(plain["cluster_sizes"]) < 0.35 * plain["participants"]
    assert min(fit(job).history[0]["cluster_sizes"]) >= 0.35 * record["participants"]


def _first_is_balanced(job: Job, seed: int) -> bool:
    job = replace(job, recipe=replace(job.recipe, seed=seed, initial="random"))
    who = participants(job.recipe, 0, job.federation.train.keys).tolist()
    losses = job.make_engine().score(drawn_models(job, 0), job.federation.train.subset(who)).loss
    return is_balanced(losses.argmin(1), 2)


def test_statistics_by_hand() -> None:
    assert mean_std([1.0, 3.0]) == (2.0, 1.0)  # population
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 40) == pytest.approx((0.0, 0.0876), abs=1e-4)
    found = line_through([0, 1, 2], [0.0, 1.0, 1.0])  # slope 1/2, residuals -1/6, 1/3, -1/6
    half = 12.7062 * np.sqrt(1 / 6 / 1 / 2)  # Student's t with one degree of freedom
    assert (found.slope, found.low, found.high) == pytest.approx((0.5, 0.5 - half, 0.5 + half), abs=1e-3)
    assert power_law([1, 2, 4], [3.0, 12.0, 48.0]).slope == pytest.approx(2.0)
    assert line_through([1, 2, 3], [4.0, 4.0, 4.0]) == (0.0, 0.0, 0.0, 4.0)  # all y equal: exact
    with pytest.raises(ValueError, match="three points"):
        line_through([1, 1, 1], [1.0, 2.0, 3.0])
