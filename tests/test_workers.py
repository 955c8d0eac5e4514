"""Trainings in several processes, each pinned to a GPU: dealt in turn, and the same results as one by one."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ifca.core.errors import InvalidInput
from ifca.runs.choose_k import choose_k
from ifca.runs.config import Config, ModelConfig
from ifca.runs.data_config import SyntheticData
from ifca.runs.run import run
from ifca.runs.units.pool import VISIBLE, Pool, gpus, pooled, workers_of

TINY = Config(
    algorithm="ifca-plain",
    k=2,
    rounds=2,
    initial="bernoulli",
    option="gradient",
    device="cpu",
    data=SyntheticData(clients=4, samples=6, dimension=3, test_samples=4),
    model=ModelConfig(name="linear"),
)


def seen(task: int) -> tuple[int, str | None, int]:
    """Which GPU the worker of a task sees; slow enough that every worker has one."""
    time.sleep(0.5)
    return task, os.environ.get(VISIBLE), os.getpid()


def test_workers_are_dealt_the_gpus_in_turn() -> None:
    """Two workers, the two GPUs of a list that stands for a machine's."""
    found = list(pooled([0, 1, 2], seen, 2, ["3", "7"]))
    by_worker = {worker: device for _, device, worker in found}
    assert sorted(task for task, _, _ in found) == [0, 1, 2]
    if len(by_worker) == 2:  # on a busy machine one worker may have done all
        assert sorted(map(str, by_worker.values())) == ["3", "7"]
    assert set(by_worker.values()) <= {"3", "7"}


def refused(task: int) -> int:
    """What goes wrong in a worker."""
    if task == 1:
        raise InvalidInput("no")
    return os.getpid()


def test_a_pool_serves_several_lists_of_tasks() -> None:
    """By the same processes; by others after one of a list went wrong."""
    with Pool(1, []) as pool:
        first, second = (list(pool.each([0, 2], refused)) for _ in range(2))
        assert len({*first, *second}) == 1
        with pytest.raises(InvalidInput, match="no"):
            list(pool.each([0, 1], refused))
        (third,) = pool.each([0], refused)
        assert third not in first
        assert list(pool.each([0, 2], refused, until=0.0)) == []


def test_how_many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert workers_of(None, "cpu") == 1
    assert workers_of(5, "cpu") == 5
    with pytest.raises(InvalidInput, match="workers must be at least 1"):
        workers_of(0, "cpu")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.delenv(VISIBLE, raising=False)
    assert gpus() == ["0", "1", "2"]
    assert workers_of(None, "auto") == 3
    monkeypatch.setenv(VISIBLE, "4,6")
    assert gpus("cuda") == ["4", "6"]
    assert gpus("cpu") == []


def test_a_study_and_restarts_by_workers_are_the_same(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    alone = choose_k(TINY, range(1, 3), 1, tmp_path / "alone")
    several = choose_k(
        TINY, range(1, 3), 1, tmp_path / "several", None, 2, lambda _folder, done, of: told.append((done, of))
    )
    assert told == [(1, 3), (2, 3), (3, 3)]
    for name in ("supported_k", "table", "because"):
        assert several[name] == alone[name]
    config = replace(TINY, restarts=2)
    by_one, by_two = run(config, tmp_path / "one"), run(config, tmp_path / "two", workers=2)
    for name in ("train_loss", "kept_restart", "cluster_sizes"):
        assert by_two[name] == by_one[name]
    both = ([start["train_loss"] for start in found["restarts"]] for found in (by_one, by_two))
    assert next(both) == next(both)
