"""Captured steps and turns without a GPU: a graph is replayed by doing its work again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ifca.core.recipe import Recipe
from ifca.core.types import ClientReply, select
from ifca.data import Federation
from ifca.engines.cuda import captured_turns
from ifca.engines.cuda.captured_turns import widened
from ifca.engines.cuda.graphed import first_with
from ifca.engines.cuda.streams import Streams, evened
from ifca.engines.vectorised import VectorisedEngine
from ifca.methods.registry import method_of
from ifca.models import mlp
from ifca.training import Job
from ifca.training.start import start

CPU = torch.device("cpu")


class Replayed:
    """In the place of a CUDA graph."""

    def __init__(self, work: Callable[[], None], _pool: object = None) -> None:
        self.replay = work
        work()  # as warm-ups do: what a capture holds is no longer what it was given

    def pool(self) -> None:
        """Of graphs that share their memory."""


def _parts(_self: Any, count: int, at_once: int) -> Iterator[tuple[slice, Any, int]]:
    for turn, first in enumerate(range(0, count, at_once)):
        yield slice(first, first + at_once), nullcontext(), turn % 2


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streams, "parts", _parts)
    monkeypatch.setattr(Streams, "captured", staticmethod(Replayed))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def clients(sizes: tuple[int, ...], *shape: int) -> Federation:
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(n, *shape)).astype(np.float32) for n in sizes]
    return Federation.from_arrays(x, [rng.integers(0, 4, n) for n in sizes], classes=4)


def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(48, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4)),
    )


def plain_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))


MINI = Recipe(algorithm="ifca-plain", k=2, local_epochs=2, batch_size=5, step_size=0.05, evaluate_every=0)
NORM = replace(MINI, optimizer="adam", batch_norm="average")
JOBS = {
    "plain": Job(clients((9, 4, 12), 1, 6, 6), MINI, plain_network),
    "adam, batch norm and dropout": Job(clients((9, 4, 12), 1, 6, 6), NORM, network),
    "momentum of many at once": Job(
        clients((9, 4, 12), 7), replace(MINI, optimizer="momentum"), lambda: mlp(7, 4)
    ),
}


def assert_alike(found: ClientReply, wanted: ClientReply) -> None:
    assert torch.equal(found.identity, wanted.identity)
    torch.testing.assert_close(found.losses, wanted.losses, equal_nan=True)
    for name, value in wanted.update.items():
        torch.testing.assert_close(found.update[name], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("known", [False, True])
def test_captured_steps_are_the_turns_of_core(name: str, known: bool) -> None:
    """The largest client first, or not; a chunk of fewer clients uses what was captured for more."""
    job = JOBS[name]
    train, theta = job.federation.train, start(job).theta
    engine = VectorisedEngine(job.task, job.recipe, train)
    for t, who in enumerate((np.array([2, 0, 1]), np.array([0, 1, 2]), np.array([2, 1]))):
        own = torch.tensor([1, 0, 1])[: len(who)] if known else None
        data = train.padded(who, CPU, torch.float32)
        plan = engine._plan(t, who, int(train.sizes[who].max()))
        wanted = engine._mapped_turns(theta, data, plan, own, 0.05)
        assert_alike(engine._captured_steps(theta, data, plan, own, 0.05), wanted)


@pytest.mark.parametrize("algorithm", ["ditto", "per-fedavg", "apfl", "fedem"])
def test_captured_turns_are_the_turns_of_core(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models and steps change from round to round; a third shape of clients drives out the first."""
    monkeypatch.setattr(captured_turns, "KEPT", 2)
    job = Job(clients((9, 4, 12), 1, 6, 6), replace(MINI, algorithm=algorithm, step_decay=0.5), plain_network)
    train, theta = job.federation.train, start(job).theta
    personal = method_of(algorithm).personal
    engine = VectorisedEngine(job.task, job.recipe, train)
    for t, who in enumerate((np.array([0, 1, 2]), np.array([1, 0]), np.array([1]), np.array([2, 0]))):
        own = torch.from_numpy(who) if personal else None
        size = evened(int(train.sizes[who].max()), 12)
        data = widened(train.padded(who, CPU, torch.float32), size)
        plan = engine._plan(t, who, size)
        wanted = engine._mapped_turns(theta, data, plan, own, job.recipe.step(t))
        assert_alike(engine._captured(theta, data, plan, own, job.recipe.step(t)), wanted)
        theta = {name: value * 1.01 for name, value in theta.items()}
    fewer = select(theta, torch.arange(2))
    if not personal:
        assert_alike(
            engine._captured(fewer, data, plan, own, 0.05), engine._mapped_turns(fewer, data, plan, own, 0.05)
        )


def test_sizes_are_rounded_up_to_a_few() -> None:
    assert [evened(n, 100) for n in (1, 2, 3, 5, 9, 40, 90, 100)] == [1, 2, 3, 5, 10, 41, 97, 100]
    assert len({evened(n, 10_000) for n in range(1, 10_001)}) < 42


def test_wider_plans_have_the_same_rows() -> None:
    """What a client does must not depend on how wide its chunk is."""
    job = JOBS["adam, batch norm and dropout"]
    train = job.federation.train
    engine = VectorisedEngine(job.task, job.recipe, train)
    who = np.array([1])
    narrow, wide = (engine._plan(3, who, size) for size in (4, 12))
    assert narrow.steps is not None
    assert wide.steps is not None
    assert narrow.steps.shape == (1, 2, 4)  # two epochs of one batch
    assert wide.steps.shape == (1, 6, 5)  # of three
    rows = [step[step >= 0].tolist() for step in wide.steps[0]]
    assert [sorted(step) for step in rows] == [[0, 1, 2, 3], [], [], [0, 1, 2, 3], [], []]
    assert rows[0] == narrow.steps[0, 0].tolist()
    assert rows[3] == narrow.steps[0, 1].tolist()


def test_steps_are_those_of_the_first_clients_that_have_samples_left() -> None:
    """Two epochs of clients with 3, 2, 2 and 1 batches."""
    left = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 0], [1, 1, 0, 1, 1, 0], [1, 0, 0, 1, 0, 0]]) > 0
    assert first_with(left) == [4, 3, 1, 4, 3, 1]
    assert first_with(left[3:]) == [1, 0, 0, 1, 0, 0]
    assert first_with(left[[3, 0]]) == [2, 2, 2, 2, 2, 2]  # in another order nothing is saved
