"""Groups that the founding's linear probe cannot see are found later, by the directions of updates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ifca.bench.table_regimes import interactions
from ifca.core.metrics import cluster_accuracy
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState
from ifca.data import Federation
from ifca.methods.founding import bisected, to_go
from ifca.methods.groups import memory_of, parted
from ifca.methods.ifca import IFCA
from ifca.models import mlp
from ifca.training import Fitted, Job, fit


def job(**fields: Any) -> Job:
    usual = {"algorithm": "ifca", "k": 2, "rounds": 24, "step_size": 0.3, "local_steps": 10}
    return Job(interactions(0), Recipe(**{**usual, **fields}), lambda: mlp(6, 2, hidden=(16,)))


def after(rounds: int, some: Job) -> ClusterState:
    """The state after so many rounds."""
    states: dict[int, ClusterState] = {}
    fit(some, on_round=lambda state, _record: states.update({state.round: state}))
    return states[rounds]


def events(fitted: Fitted) -> list[str]:
    return [event["event"] for record in fitted.history for event in record.get("events", [])]


def right(fitted: Fitted) -> float:
    true = fitted.job.federation.train.true_cluster
    assert true is not None
    return cluster_accuracy(true, fitted.labels.numpy())


@pytest.mark.parametrize(("t", "rounds"), [(0, 16), (15, 1), (16, 48), (63, 1), (64, 192), (300, 724)])
def test_when(t: int, rounds: int) -> None:
    assert to_go(t) == rounds


def test_the_most_spread_group_is_parted_by_directions() -> None:
    """Lengths do not matter: of the first group (1, 0), (9, 0) and (0, 1), (0, 2) belong together."""
    updates = torch.tensor([[1.0, 0.0], [9.0, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 1.0], [2.0, 2.0]])
    groups, keys = torch.tensor([0, 0, 0, 0, 2, 2]), np.arange(6, dtype=np.uint64)
    assert bisected(updates, groups, [1], keys).tolist() == [0, 0, 1, 1, 2, 2]
    assert bisected(updates, groups, [1, 3, 4], keys).tolist() == [0, 0, 1, 1, 2, 2]  # nothing left to part


def test_parts_begin_with_their_groups_model() -> None:
    state = after(9, job(rounds=10))
    memory = memory_of(state)
    assert int(state.live.sum()) == 1
    j = int(state.live.int().argmax())
    group = torch.where(torch.arange(40) < 10, 1 - j, j)
    group[0] = -1
    new, _ = parted(state, memory, group)
    for value in new.theta.values():
        torch.testing.assert_close(value[0], value[1], rtol=0, atol=0)
    assert new.live.all()
    assert new.identity.tolist() == [j, *[1 - j] * 9, *[j] * 30]
    remembered = memory_of(new)
    assert remembered.turns[1 - j] == pytest.approx(
        float(memory.turns[j]) * 9 / 39
    )  # nine of the 39 who were heard
    assert (remembered.parted, remembered.since) == (state.round, state.round)


@pytest.mark.parametrize("seed", range(3))
def test_groups_that_differ_in_how_features_act_together(seed: int) -> None:
    fitted = fit(replace(job(rounds=60, seed=seed), federation=interactions(seed)))
    assert events(fitted)[:3] == ["merged", "parted", "kept"]
    assert right(fitted) == 1.0


def test_with_part_of_the_clients_in_a_round() -> None:
    """Updates are gathered in four rounds; whoever was not heard chooses."""
    fitted = fit(job(rounds=100, participation=0.25, seed=1))
    assert "parted" in events(fitted)
    assert right(fitted) == 1.0


def test_one_population_becomes_one_again() -> None:
    federation = interactions(0)
    ours = [i for i in range(40) if i % 2 == 0]
    alone = Federation(federation.train.subset(ours), classes=2)
    fitted = fit(replace(job(rounds=40, k=4), federation=alone))
    assert "parted" in events(fitted)
    assert len(set(fitted.labels.tolist())) == 1


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_a_run_that_stops_while_updates_are_gathered(engine: Any) -> None:
    whole = fit(replace(job(participation=0.5), engine=engine))
    half = after(15, replace(job(participation=0.5), engine=engine))
    assert memory_of(half).sketch.shape[1] == 128
    rest = fit(replace(job(participation=0.5), engine=engine), resume=half)
    for name, value in whole.state.theta.items():
        assert torch.equal(value, rest.state.theta[name])


def test_a_client_that_joins_while_updates_are_gathered() -> None:
    state = after(15, job(participation=0.5, rounds=16))
    grown = IFCA.joined(job().recipe, state, 2)
    assert grown is not None
    sketch = memory_of(grown).sketch
    assert sketch.shape == (42, 128)
    assert sketch[40:].isnan().all()
