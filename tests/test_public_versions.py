"""Test doubles of public IFCA versions: each does what it says, in numbers that can be redone on paper.

Clients A (1, 2), B (1, -2), C (1, 4) with scalar models y = theta x, squared loss, one local step of 0.1.
From theta 1 and -1: A and C choose model 0, B model 1; A trains 1 to 1.2, C 1 to 1.6, B -1 to -1.2.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import public_doubles as doubles
from benchmarks.public_table import paired, summary, table
from benchmarks.public_versions import BESIDE, REGIMES, job_of, measured, units

from ifca.core.client import cluster_losses
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.types import Params
from ifca.data import Client, Federation
from ifca.methods import Method, register, registry
from ifca.methods.ifca_plain import IFCA_PLAIN
from ifca.models import linear, logistic
from ifca.runs.units.lines import read_lines
from ifca.training import Fitted, Job, fit
from tests.conftest import scalar_job

ROOT = Path(__file__).parent.parent
CLIENTS = [(1.0, 2.0), (1.0, -2.0), (1.0, 4.0)]
RECIPE = Recipe(algorithm="ifca-plain", k=2, rounds=1, local_steps=1, step_size=0.1)


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))


def trained(method: Method, job: Job) -> Fitted:
    name = register(replace(method, name="double")).name
    return fit(replace(job, recipe=replace(job.recipe, algorithm=name)))


def double(name: str, rounds: int = 1, theta: tuple[float, ...] = (1.0, -1.0)) -> Fitted:
    job = scalar_job(CLIENTS, list(theta), replace(RECIPE, rounds=rounds, k=len(theta)))
    return trained(doubles.DOUBLES[name].make(job), job)


def models(fitted: Fitted) -> list[float]:
    values: list[float] = fitted.state.theta["fc1.weight"].flatten().tolist()
    return values


def test_equal_models_all_choose_the_first() -> None:
    fitted = double("equal")
    assert fitted.history[0]["identity"] == [0, 0, 0]
    assert models(fitted) == pytest.approx([(1.2 + 0.4 + 1.6) / 3, 1.0])  # B trains 1 to 0.4


def test_an_empty_model_becomes_zero() -> None:
    assert models(double("zeroed", theta=(1.0, -1.0, 50.0))) == pytest.approx([1.4, -1.2, 0.0])


@pytest.mark.parametrize(("name", "left"), [("zeroed", 0.0), ("reset", -1.0), ("plain", -1.2)])
def test_a_model_that_nobody_chooses_in_one_round(name: str, left: float) -> None:
    """B is not asked in round 1; plain IFCA keeps its model at -1.2."""
    job = scalar_job(CLIENTS, [1.0, -1.0], replace(RECIPE, rounds=2))
    method = IFCA_PLAIN if name == "plain" else doubles.DOUBLES[name].make(job)
    found = trained(replace(method, takes_part=lambda _r, state, who: who[:: 1 + state.round]), job)
    # round 1 from 1.4: A to 1.52, C to 1.92
    assert models(found) == pytest.approx([1.72, left])


def test_the_sum_of_a_cluster_is_divided_by_all() -> None:
    assert models(double("divided")) == pytest.approx([2.8 / 3, -1.2 / 3])
    assert models(double("divided", theta=(1.0, -1.0, 50.0)))[2] == 50.0


@pytest.mark.parametrize(("once", "then"), [(False, [0, 1, 1]), (True, [0, 1, 0])])
def test_who_chose_once_stays(once: bool, then: list[int]) -> None:
    """The third client loses 4 and 4.41 at first, 6.76 and 4.33 when the first has pulled its model away."""
    job = scalar_job([(1.0, 10.0), (1.0, -2.0), (1.0, 0.0)], [2.0, -2.1], replace(RECIPE, rounds=2))
    fitted = trained(doubles.DOUBLES["once"].make(job) if once else IFCA_PLAIN, job)
    assert [record["identity"] for record in fitted.history] == [[0, 1, 0], then]


def test_clients_are_dealt_at_random_and_that_is_reported() -> None:
    fitted = double("first-labels", rounds=3)
    first = fitted.state.memory[doubles.FIRST].tolist()
    assert fitted.history[0]["identity"] == first
    assert set(first) == {0, 1}
    assert fitted.labels.tolist() == fitted.train.loss.argmin(1).tolist()


def test_identity_by_test_loss() -> None:
    """By its training sample A belongs to model 0, by its test sample to model 1."""
    x, y = np.array([[1.0]]), np.array([2.0])
    theta: Params = {"fc1.weight": torch.tensor([1.0, -1.0], dtype=torch.float64).reshape(-1, 1, 1)}
    both = [Client(x, y, x, -y), Client(x, -y, x, y)]
    job = Job(Federation.from_clients(both), RECIPE, lambda: linear(1), precision="float64", warm_start=theta)
    assert doubles.loss_on_tests(job, theta, 0).tolist() == [[9.0, 1.0], [1.0, 9.0]]
    fitted = trained(doubles.DOUBLES["test-loss"].make(job), job)
    assert fitted.history[0]["identity"] == [1, 0]
    assert models(fitted) == pytest.approx([0.4, -0.4])  # 1 - 0.2 (1 + 2), -1 - 0.2 (-1 - 2)
    assert fitted.labels.tolist() == [1, 0]


def classes(signs: list[int]) -> tuple[Job, Params]:
    """Clients whose samples are all of class 1. Model 0 is sure that x > 0 is class 1, model 1 doubts it.

    Its test samples are 1, 1 and -1.
    """
    ones = np.ones(len(signs), int)
    client = Client(np.array(signs, float)[:, None], ones, np.array([[1.0], [1.0], [-1.0]]), ones[:3])
    job = Job(Federation.from_clients([client] * 2, classes=2), RECIPE, lambda: logistic(1, 2))
    names = {name: value.shape for name, value in job.template.named_parameters()}
    theta = {name: torch.zeros(2, *shape) for name, shape in names.items()}
    weight = next(name for name, shape in names.items() if len(shape) == 2)
    theta[weight][:, 1, 0] = torch.tensor([30.0, -0.01])
    return job, theta


def test_identity_by_test_accuracy() -> None:
    job, theta = classes([1, 1, -1])
    # model 0 is right on two of three and loses 30 on the third; model 1 is right on one and loses log 2
    assert doubles.accuracy_on_tests(job, theta, 0)[0].tolist() == pytest.approx([-2 / 3, -1 / 3])
    assert doubles.loss_on_tests(job, theta, 0)[0].tolist() == pytest.approx([10.0, 0.6948], abs=1e-3)


def test_identity_by_the_accuracy_on_ten_samples() -> None:
    job, theta = classes([1] * 10 + [-1] * 10)
    found = [doubles.batch_accuracy(job, theta, t)[0] for t in range(6)]
    for of_round in found:
        assert float(of_round.sum()) == pytest.approx(-1)  # each sample is right under one of the two
        assert float(10 * of_round[0]) == pytest.approx(round(float(10 * of_round[0])))
    assert len({float(of_round[0]) for of_round in found}) > 1


def test_equal_models_are_told_apart_by_rounding() -> None:
    job = job_of("uneven", "equal-shuffled", 1000)
    one = job.draw(torch.Generator().manual_seed(0))
    theta = {name: torch.stack([value] * 4) for name, value in one.items()}
    found = doubles.shuffled_loss(job, theta, 0)
    assert float((found - found[:, :1]).abs().max()) < 1e-5
    assert len(set(found.argmin(1).tolist())) > 1


def test_choosing_at_the_server_changes_nothing_else() -> None:
    """With the paper's rule the frame of these doubles is plain IFCA to the bit."""
    job = job_of("part", "ifca-plain", 1000)
    job = replace(job, engine="loop", recipe=replace(job.recipe, rounds=3, local_steps=2))

    def losses(job: Job, theta: Params, _t: int) -> torch.Tensor:
        clients = job.federation.train
        each = (clients.one(i, job.device, job.dtype) for i in range(len(clients)))
        return torch.stack([cluster_losses(job.task, theta, data) for data in each])

    plain, same = fit(job), trained(doubles.chosen_by(losses, job, IFCA_PLAIN), job)
    assert all(torch.equal(value, same.state.theta[name]) for name, value in plain.state.theta.items())
    assert plain.labels.tolist() == same.labels.tolist()


@pytest.mark.parametrize("name", [*BESIDE, *doubles.DOUBLES])
def test_every_row_of_the_table_runs(name: str) -> None:
    job = job_of("uneven", name, 1000)
    found = measured(fit(replace(job, recipe=replace(job.recipe, rounds=2, local_steps=2))))
    assert 0 <= found["accuracy"] <= 1
    assert 1 <= found["live"] <= 4


def test_units_are_named() -> None:
    assert len(units((), (), None)) == 10 * len(REGIMES) * (len(BESIDE) + len(doubles.DOUBLES))
    with pytest.raises(InvalidInput, match="unknown method sure"):
        units((), ("sure",), None)


def test_the_cost_is_paired_over_seeds() -> None:
    assert paired(np.array([1.0, 3.0])) == pytest.approx((2.0, 12.7062), abs=1e-3)  # 12.706 x 1.4142 / 1.4142
    line = {"setting": "uneven", "reported": 0.5, "ari": 1.0, "reported_ari": 0.0, "live": 4, "seconds": 1.0}
    line |= {"device": "cpu", "commit": "c", "versions": {"ifca": "1"}}
    scores: list[tuple[str, int, float]] = [("ifca-plain", 0, 0.9), ("ifca-plain", 1, 0.8)]
    scores += [("equal", 0, 0.7), ("equal", 1, 0.8), ("ifca-plain", 2, 0.1)]  # seed 2: not of both
    lines = [{**line, "algorithm": name, "seed": seed, "accuracy": value} for name, seed, value in scores]
    found = summary(lines, {"uneven": "small"})
    assert [row["against_plain"] for row in found["rows"]] == [0.0, -10.0]
    assert found["rows"][0]["accuracy"] == 85.0
    assert "| `equal` | 75.0 | -10.0 ± 127.1 | 50.0 | 1.00 | 0.00 | 4.0 | 2 of 2 |" in table(found)


def test_the_page_shows_the_table_of_the_lines() -> None:
    folder = ROOT / "results" / "public-versions"
    lines = read_lines(folder)
    assert all(line["commit"] and "dirty" not in line["commit"] for line in lines)
    found = summary(lines, {name: regime.why for name, regime in REGIMES.items()})
    assert json.loads((folder / "summary.json").read_text()) == json.loads(json.dumps(found))
    assert (folder / "table.md").read_text() == table(found)
    assert table(found) in (ROOT / "docs" / "done-right.md").read_text()
