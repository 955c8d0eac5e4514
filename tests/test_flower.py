"""The Flower engine inside one process: equal to the loop, whatever the algorithm; bytes as counted."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ifca.bench.table_regimes import interactions
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Federation, rotated_digits
from ifca.engines.base import Engine
from ifca.models import BuiltIn, mlp
from ifca.runs.attack_config import AttackConfig
from ifca.training import Fitted, Job, fit
from ifca.training.start import start
from tests.conftest import groups, make_job
from tests.test_contract import ALGORITHMS, assert_same, recipe_of, same_bits

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Message, RecordDict

from ifca.engines.flower import Exchange, FaultLog, FlowerEngine, Roster, Session, Terms
from ifca.engines.flower.agreement import agreed
from ifca.engines.flower.local_grid import LocalGrid
from ifca.engines.flower.members import Member, member_of, query_members
from ifca.engines.flower.records import CLUSTERED, REPLY, from_record, to_record, unpack
from ifca.engines.live_models import compact
from ifca.federation.clientapp import description, make_client_app
from ifca.federation.strategy import IFCAStrategy, gather


def split(federation: Federation) -> list[Federation]:
    """A federation of one for each client."""
    parts = []
    for i in range(len(federation.train)):
        mine = [j for j, owner in enumerate(federation.test_owner.tolist()) if owner == i]
        test = federation.test.subset(mine) if federation.test is not None and mine else None
        parts.append(Federation(federation.train.subset([i]), test, federation.classes))
    return parts


def in_process(
    job: Job, raw: Federation | None = None, attack: AttackConfig | None = None, **terms: Any
) -> tuple[Job, Session, LocalGrid]:
    """The same job with its clients behind a grid: the server is left with names and sizes.

    raw: the clients' data where the job scales features and targets; attack: of some of the clients.
    """
    parts = split(raw or job.federation)

    def job_of(_context: Context, mine: Federation) -> Job:
        if raw is not None:  # each by its own numbers, until told
            mine = mine.standardised().with_scaled_targets()
        own = None if attack is None else attack.by(mine.train, job.recipe.seed)
        return replace(job, federation=mine, recipe=replace(job.recipe, k=1), attack=own)

    app = make_client_app(lambda context: parts[int(context.node_config["partition-id"])], job_of)
    grid = LocalGrid(app, len(parts))
    exchange, faults = Exchange(grid, timeout=5, poll=0.01), FaultLog()
    members, _ = query_members(exchange, exchange.nodes(), faults, 0, 5)
    session = Session(exchange, Roster(tuple(members)), Terms(pause=0, **terms), faults)
    remote = partial(flower, session, job.recipe.algorithm)
    return replace(job, federation=session.roster.federation(), engine="flower", remote=remote), session, grid


def flower(session: Session, algorithm: str, job: Job) -> FlowerEngine:
    alone = job.recipe.algorithm != algorithm
    joins = not alone and algorithm != "local"
    step = job.recipe.step_size if job.halvings else None
    parts = session, job.recipe, job.federation, job.shared
    return FlowerEngine(*parts, alone=alone, open_to_new=joins, model=job.model, step_size=step)


def assert_equal(a: Fitted, b: Fitted) -> None:
    assert_same(a, b, 1e-6, counted=False)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_equals_the_loop(name: str, unequal: Federation) -> None:
    job = make_job(unequal, recipe_of(name), engine="loop")
    remote, session, _ = in_process(job)
    assert not len(remote.federation.train.x)  # the server has no data
    assert_equal(fit(job), fit(remote))
    assert not session.faults.counts


@pytest.mark.parametrize(
    "name", ["ifca", *(pytest.param(name, marks=pytest.mark.slow) for name in ("plain", "oneshot", "local"))]
)
def test_early_stopping_equals_the_loop(name: str, unequal: Federation) -> None:
    job = make_job(unequal, replace(recipe_of(name), rounds=25, early_stopping=True), engine="loop")
    mine, other = fit(job), fit(in_process(job)[0])
    assert_equal(mine, other)
    assert [r["held_out_loss"] for r in mine.history if "held_out_loss" in r] == pytest.approx(
        [r["held_out_loss"] for r in other.history if "held_out_loss" in r]
    )


@pytest.mark.parametrize(
    ("name", "steps"),
    [("global", {"step_size": 100.0}), ("per-fedavg", {"step_size": 1.0, "inner_step_size": 100.0})],
)
def test_clients_take_the_halved_step(name: str, steps: dict[str, float], unequal: Federation) -> None:
    recipe = replace(Recipe(name, rounds=12, local_steps=2, on_divergence="halve"), **steps)  # type: ignore[arg-type]
    job = make_job(unequal, recipe, engine="loop")
    mine, other = fit(job), fit(in_process(job)[0])
    assert mine.state.progress.halved
    assert mine.job.recipe.step_size == other.job.recipe.step_size
    assert mine.job.recipe.inner_step_size == other.job.recipe.inner_step_size
    assert [r["train_loss"] for r in mine.history] == pytest.approx([r["train_loss"] for r in other.history])


def test_features_and_targets_are_scaled_by_what_all_clients_say() -> None:
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(n, 3)) for n in (12, 7, 20)]
    y = [100.0 * (i + 1) + 50 * a[:, :2] for i, a in enumerate(x)]  # two targets, other means at each client
    for targets in ([one[:, 0] for one in y], y):
        raw = Federation.from_arrays(x, targets, x, targets)
        recipe = Recipe("ifca-plain", k=1, rounds=3, local_steps=3)
        model = BuiltIn("mlp", (3,), raw.outputs, (5,))
        job = Job(raw.standardised().with_scaled_targets(), recipe, model, engine="loop", precision="float64")
        remote, session, _ = in_process(job, raw)
        for kind in ("scaling", "target_scaling"):
            mine, told = getattr(job.federation, kind), getattr(remote.federation, kind)
            torch.testing.assert_close(mine.mean, told.mean)
            torch.testing.assert_close(mine.scale, told.scale)
        assert_equal(fit(job), fit(remote))
        assert not session.faults.counts


def test_who_joins_later_changes_neither_scales_nor_the_model() -> None:
    """The first two have 4 targets of mean 2; a third, of mean 50, comes when rounds have begun."""
    known = {"place": -1, "test_samples": 0, "input_shape": (3,), "target_shape": (), "pixels": False}
    first, second, third = (
        Member(name, samples=2, classes=-1, cluster=None, node=i, target_moments=(mean, 1.0), **known)  # type: ignore[arg-type]
        for i, (name, mean) in enumerate({"a": 1.0, "b": 3.0, "c": 50.0}.items(), 1)
    )
    roster = Roster((first, second), begun=True)
    after = Roster.from_json(roster.joined([third], [1, 2, 3])[0].to_json()).federation()
    assert len(after.train) == 3
    assert after.first_samples == 4
    assert after.target_scaling is not None
    assert float(after.target_scaling.mean) == 2
    assert float(after.target_scaling.scale) == 2**0.5  # 1 within, 1 between


def test_one_who_does_not_tell_its_moments_does_not_end_scaling_for_all() -> None:
    known = {"place": -1, "test_samples": 0, "input_shape": (3,), "target_shape": (), "pixels": False}
    first, second, silent = (
        Member(name, samples=2, classes=-1, cluster=None, node=i, target_moments=told, **known)  # type: ignore[arg-type]
        for i, (name, told) in enumerate({"a": (1.0, 1.0), "b": (3.0, 1.0), "c": ()}.items(), 1)
    )
    taken, refused = agreed([silent, first, second])
    assert list(refused) == [3]
    roster = Roster(tuple(taken), begun=True)
    assert roster.federation().target_scaling is not None
    assert len(roster.joined([silent], [1, 2, 3])[0].members) == 3  # then nobody is asked any more


@pytest.mark.parametrize(
    "wrong",
    [
        {"target_moments": [1.0]},
        {"target_moments": [1.0, -1.0]},
        {"target_moments": [float("nan"), 1.0]},
        {"target_moments": [1e300, 1.0]},
    ],
)
def test_moments_that_no_honest_client_sends_are_refused(wrong: dict[str, Any]) -> None:
    raw = Federation.from_arrays([np.ones((4, 2))], [np.array([1.0, 2, 3, 4])])
    told = description(raw, 0, Job(raw, Recipe(k=1, rounds=1), lambda: mlp(2, 1)))
    told.config_records[REPLY].update(wrong)
    faults, asked = FaultLog(), Message(RecordDict(), 1, "query")
    asked.metadata.__dict__["_message_id"] = "1"
    assert member_of(Message(told, reply_to=asked), 1, faults, 0) is None
    assert faults.counts["malformed"] == 1


def test_same_seed_same_bits_and_resuming_changes_none(unequal: Federation) -> None:
    job, _, _ = in_process(make_job(unequal, recipe_of("plain-stable-shared")))
    states = []
    whole = fit(job, on_round=lambda state, _record: states.append(state))
    for state in states[:-1]:
        assert same_bits(fit(job, resume=state).state.theta, whole.state.theta)


@pytest.mark.parametrize(
    "name", ["plain", "plain-shared", "plain-stable", "global", "plain-gradient", "ifca"]
)
def test_measured_bytes_agree_with_counted_ones(name: str) -> None:
    federation = groups((12, 7, 20, 14, 9), dimension=200)
    job = Job(federation, recipe_of(name), lambda: mlp(200, 3, (40,)), engine="loop")
    counted, measured = fit(job).history, fit(in_process(job)[0]).history
    for mine, other in zip(measured, counted, strict=True):
        assert mine["bytes_down"] == pytest.approx(other["bytes_down"], rel=0.05)
        assert mine["bytes_up"] == pytest.approx(other["bytes_up"], rel=0.05)


def test_the_bytes_of_local_solutions_are_counted() -> None:
    """One-shot clustering: each of its 2 local rounds sends a client its own model, and takes its update."""
    federation = groups((12, 7, 20, 14, 9), dimension=2000)
    job = Job(federation, recipe_of("oneshot"), lambda: mlp(2000, 3, (5,)), engine="loop")
    remote, _, _ = in_process(job)
    solution = 4 * (3 * 2000 + 3)  # bytes of a logistic regression in float32
    first, fitted = start(remote), fit(remote)
    assert start(job).bytes_up.tolist() == [solution] * 5  # in simulation it is sent once, at the end
    for name in ("bytes_down", "bytes_up"):
        assert getattr(first, name).tolist() == pytest.approx([2 * solution] * 5, rel=0.05)
        assert sum(record[name] for record in fitted.history) == int(getattr(fitted.state, name).sum())


def test_half_precision_halves_the_updates_and_little_else(unequal: Federation) -> None:
    job = make_job(unequal, Recipe("ifca-plain", k=2, rounds=4, local_steps=3, seed=3), precision="float32")
    whole, half = fit(in_process(job)[0]), fit(in_process(job, half=True)[0])
    assert half.state.bytes_up.sum() < whole.state.bytes_up.sum()
    assert half.labels.tolist() == whole.labels.tolist()
    for name, value in whole.state.theta.items():
        torch.testing.assert_close(value, half.state.theta[name], rtol=1e-2, atol=1e-3)


def test_nothing_but_raw_floats_crosses(unequal: Federation) -> None:
    job, _, grid = in_process(make_job(unequal, recipe_of("plain-shared")))
    fit(job)
    arrays = [
        array for m in grid.sent for record in m.content.array_records.values() for array in record.values()
    ]
    assert {array.stype for array in arrays} == {"raw"}


@pytest.mark.parametrize(
    "name", ["ifca", "plain", "plain-gradient", "plain-shared", "plain-stable", "global"]
)
def test_the_strategy_equals_the_loop(name: str, unequal: Federation) -> None:
    """Flower's own loop over the hooks."""
    job = make_job(unequal, recipe_of(name), engine="loop")
    remote, _, grid = in_process(job)
    strategy = IFCAStrategy(grid, remote, start(remote), gather(grid))
    result = strategy.start(grid, strategy.arrays, job.recipe.rounds)
    fitted = fit(job)
    for key, value in fitted.state.theta.items():
        got = from_record(result.arrays)[key][fitted.places]
        torch.testing.assert_close(got, value, rtol=1e-6, atol=1e-6)
    accuracy = result.evaluate_metrics_clientapp[job.recipe.rounds]["test_accuracy"]
    assert accuracy == fitted.history[-1]["test_accuracy"]


def test_the_strategy_has_a_founding_and_a_referee() -> None:
    """Rotated Digits: clients are asked before the first round, and once more after it."""
    job = Job(
        rotated_digits(samples=100, seed=0), Recipe(k=4, rounds=4), lambda: mlp(64, 10, (20,)), engine="loop"
    )
    remote, _, grid = in_process(job)
    strategy = IFCAStrategy(grid, remote, start(remote), gather(grid))
    strategy.start(grid, strategy.arrays, job.recipe.rounds)
    fitted = fit(job)
    assert [e["event"] for r in fitted.history for e in r["events"]] == ["kept"]
    for told, theirs in zip(strategy.history, fitted.history, strict=True):
        assert [pytest.approx(event) for event in told["events"]] == theirs["events"]
    for key, value in fitted.state.theta.items():
        mine = compact(strategy.state).theta[key]
        torch.testing.assert_close(mine, value, rtol=1e-6, atol=1e-6)
    assert torch.equal(compact(strategy.state).identity, fitted.state.identity)


def test_groups_are_founded_again_as_in_the_loop() -> None:
    """Two groups that a linear probe cannot see; updates are told apart after round 16."""
    federation = interactions(0)
    assert federation.test is not None
    first = list(range(8))
    some = Federation(federation.train.subset(first), federation.test.subset(first), 2)
    recipe = Recipe(k=2, rounds=18, step_size=0.3)
    job = Job(some, recipe, lambda: mlp(6, 2, (16,)), engine="loop")
    remote, _, grid = in_process(job)
    fitted, theirs = fit(job), fit(remote)
    assert [e["event"] for r in fitted.history for e in r["events"]] == ["merged", "parted", "kept"]
    assert_equal(theirs, fitted)
    strategy = IFCAStrategy(grid, remote, start(remote), gather(grid))
    strategy.start(grid, strategy.arrays, recipe.rounds)
    assert [e["event"] for r in strategy.history for e in r["events"]] == ["merged", "parted", "kept"]
    assert torch.equal(compact(strategy.state).identity, fitted.state.identity)


@pytest.mark.parametrize("rounds", [3, 9])  # of the recipe: those of Flower's loop count
def test_the_strategy_decides_what_is_left_when_the_rounds_end(rounds: int) -> None:
    """One population, three rounds: until then the referee had not decided."""
    federation, recipe = rotated_digits(samples=200, angles=(0,), seed=0), Recipe(k=2, rounds=3)
    job = Job(federation, recipe, lambda: mlp(64, 10, (20,)), engine="loop")
    fitted = fit(job)
    assert [e["event"] for e in fitted.history[-1]["events"]] == ["merged"]

    remote, _, grid = in_process(replace(job, recipe=replace(recipe, rounds=rounds)))
    strategy = IFCAStrategy(grid, remote, start(remote), gather(grid))
    result = strategy.start(grid, strategy.arrays, 3)
    for told, theirs in zip(strategy.history, fitted.history, strict=True):
        assert [pytest.approx(event) for event in told["events"]] == theirs["events"]
        assert told["models"] == theirs["models"]
    for key, value in fitted.state.theta.items():
        torch.testing.assert_close(from_record(result.arrays)[key][:1], value, rtol=1e-6, atol=1e-6)
    assert result.evaluate_metrics_clientapp[3]["test_accuracy"] == fitted.history[-1]["test_accuracy"]


def test_the_strategy_decides_with_a_last_round_that_failed() -> None:
    """Two rounds, then a third in which every reply to a turn is missing; clients still compare models."""
    federation, recipe = rotated_digits(samples=200, angles=(0,), seed=0), Recipe(k=2, rounds=2)
    job = Job(federation, recipe, lambda: mlp(64, 10, (20,)), engine="loop")
    remote, _, grid = in_process(replace(job, recipe=replace(recipe, rounds=3)))
    strategy = IFCAStrategy(grid, remote, start(remote), gather(grid))
    arrays, none = strategy.arrays, ConfigRecord()
    for t in (1, 2, 3):
        sent = grid.send_and_receive(strategy.configure_train(t, arrays, none, grid))
        found, told = strategy.aggregate_train(t, [] if t == 3 else sent)
        assert found is not None
        assert (told is None) == (t == 3)
        arrays = found
    fitted = fit(job)
    assert len(strategy.history) == 2
    assert strategy.history[-1]["models"] == fitted.history[-1]["models"] == 1
    for key, value in fitted.state.theta.items():
        torch.testing.assert_close(from_record(arrays)[key][:1], value, rtol=1e-6, atol=1e-6)


def test_ten_megabytes_to_four_clients_take_less_than_half_a_second() -> None:
    """What a round adds to the work of the clients and to Flower's own time: pack, weigh, check, fold."""
    federation = groups((8, 8, 8, 8), dimension=1000)
    job = Job(federation, Recipe("ifca-plain", k=2, rounds=3, local_steps=1), lambda: mlp(1000, 3, (1300,)))
    remote, _, _ = in_process(job)
    engine, loop = remote.make_engine(), replace(job, engine="loop").make_engine()
    theta, who, known = start(job).theta, torch.arange(4), torch.full((4,), -1)
    assert sum(value.numel() * 4 for value in theta.values()) > 10e6

    def seconds(engine: Engine) -> float:
        before = time.process_time()  # wall time would measure who else is on the machine
        engine.train(theta, who, known, 0)
        return time.process_time() - before

    assert min(seconds(engine) for _ in range(8)) - min(seconds(loop) for _ in range(5)) < 0.5


@pytest.mark.parametrize("shapes", [((),), ((2, 3), (3,))])
def test_models_of_which_nobody_knows_how_many_there_are(shapes: tuple[tuple[int, ...], ...]) -> None:
    """Found by the fuzzer: a parameter without any dimension in a message."""
    theta = {str(i): torch.zeros(shape) for i, shape in enumerate(shapes)}
    with pytest.raises(InvalidInput, match="not equally many of every parameter"):
        unpack(RecordDict({CLUSTERED: to_record(theta)}))
