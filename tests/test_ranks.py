"""Several processes train one federation: the same results as one, a lost process is one sentence."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ifca.cli.launching import check_launch
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState
from ifca.engines.ranks import Ranks
from ifca.runs.config import read_config
from ifca.runs.run import resume, run
from ifca.runs.units.pool import workers_of
from ifca.training import Job, fit
from ifca.training.dealt_clients import dealt, refuse
from tests.conftest import groups, make_job

ROOT = Path(__file__).parent.parent
SIZES = (12, 7, 20, 4, 9, 16, 11)
ROWS: dict[str, dict[str, Any]] = {
    "default": {"algorithm": "ifca", "rounds": 10},
    "default-partial": {"algorithm": "ifca", "rounds": 18, "participation": 0.5, "option": "gradient"},
    "plain": {"algorithm": "ifca-plain"},
    "plain-gradients": {"algorithm": "ifca-plain", "option": "gradient", "participation": 0.3},
    "plain-epochs": {"algorithm": "ifca-plain", "batch_size": 5, "local_epochs": 1, "weighted": True},
    "plain-stable": {"algorithm": "ifca-plain", "stable_after": 1, "rounds": 5},
    "plain-stopping": {"algorithm": "ifca-plain", "early_stopping": True, "rounds": 6},
    "global": {"algorithm": "global", "participation": 0.5},
    "global-single-precision": {"algorithm": "global", "participation": 0.43, "rounds": 6},
    "local": {"algorithm": "local"},
    "local-epochs": {"algorithm": "local", "batch_size": 5, "local_epochs": 1},
    "oneshot": {"algorithm": "oneshot", "erm_rounds": 3},
}


def row_job(name: str) -> Job:
    """Seven clients of 4 to 20 samples, with test data."""
    precision = "float32" if name.endswith("single-precision") else "float64"
    recipe = Recipe(**{"k": 2, "rounds": 3, "local_steps": 3, **ROWS[name]})
    return make_job(groups(SIZES), recipe, precision=precision)


def half_way(job: Job) -> ClusterState:
    """The state of a training after its fourth round, by one process."""
    states: list[ClusterState] = []
    fit(job, on_round=lambda state, _record: states.append(state))
    return states[3]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def started(rank: int, port: int, arguments: list[str], **options: Any) -> subprocess.Popen[str]:
    """One of two processes, as torchrun starts them."""
    told = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": 2,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    environment |= {name: str(value) for name, value in told.items()}
    command = [sys.executable, *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **{**pipes, **options})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes trained: every row, and one that went on from a state."""
    out, port = tmp_path_factory.mktemp("ranks"), free_port()
    both = [started(rank, port, ["-m", "tests.ranks_program", str(out)], cwd=ROOT) for rank in range(2)]
    try:
        for one in both:
            said = one.communicate(timeout=300)
            assert one.returncode == 0, said
    finally:
        for one in both:
            one.kill()
    return out


@pytest.mark.xdist_group("ranks")
@pytest.mark.parametrize("name", ROWS)
def test_two_processes_train_what_one_does(trained: Path, name: str) -> None:
    alone, found = fit(row_job(name)), torch.load(trained / f"{name}.pt", weights_only=False)
    assert torch.equal(found["labels"], alone.labels)
    torch.testing.assert_close(found["theta"], alone.state.theta, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found["losses"], alone.train.loss, rtol=1e-6, atol=1e-9)
    for mine, other in zip(alone.history, found["history"], strict=True):
        for key in ("identity", "participants", "bytes_down", "bytes_up", "models", "sent_all_models_to"):
            assert mine[key] == other[key], key
        assert other["train_loss"] == pytest.approx(mine["train_loss"], rel=1e-6)
        assert [event["event"] for event in mine.get("events", [])] == [
            event["event"] for event in other.get("events", [])
        ]
        assert other.get("test_accuracy") == mine.get("test_accuracy")


@pytest.mark.xdist_group("ranks")
def test_two_processes_go_on_from_what_one_began(trained: Path) -> None:
    found = torch.load(trained / "resumed.pt", weights_only=False)
    torch.testing.assert_close(found, fit(row_job("default")).state.theta, rtol=1e-6, atol=1e-9)


CONFIG = """
algorithm = "ifca-plain"
k = 2
rounds = 300
evaluate_every = 0
option = "gradient"
initial = "bernoulli"
device = "cpu"
[data]
name = "synthetic"
clients = 6
samples = 20
dimension = 5
[model]
name = "linear"
"""


@pytest.mark.xdist_group("ranks")
@pytest.mark.skipif(sys.platform != "linux", reason="kills a process")
def test_a_killed_rank_is_one_sentence_and_one_process_goes_on(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(CONFIG)
    out, port = tmp_path / "run", free_port()
    command = ["-m", "ifca", "run", str(tmp_path / "job.toml"), "--out", str(out), "--quiet"]
    both = [started(rank, port, command) for rank in range(2)]
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until and both[0].poll() is None:
            rounds = out / "rounds.jsonl"
            if rounds.exists() and rounds.read_text().count("\n") > 3:
                break
            time.sleep(0.01)
        both[1].send_signal(signal.SIGKILL)
        _, said = both[0].communicate(timeout=120)
    finally:
        for one in both:
            one.kill()
            one.communicate()
    assert both[0].returncode == 1, said
    (sentence,) = [line for line in said.splitlines() if line.startswith("error:")]
    assert "another rank of this run ended" in sentence
    assert "'ifca resume' goes on" in sentence
    assert "Traceback" not in said
    whole = run(read_config(tmp_path / "job.toml"), tmp_path / "whole")
    assert resume(out)["train_loss"] == pytest.approx(whole["train_loss"], rel=1e-6)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"aggregation": "median"}, "aggregation = 'median' needs what single clients send"),
            ({"check_updates": True}, "check_updates needs"),
            ({"initial": "balanced"}, 'initial = "balanced" needs'),
        ],
    )
    def test_in_a_sentence(self, settings: dict[str, Any], said: str) -> None:
        recipe = replace(row_job("plain").recipe, **settings)
        with pytest.raises(InvalidInput, match=said):
            refuse(replace(row_job("plain"), recipe=recipe))

    def test_more_ranks_than_clients(self) -> None:
        with pytest.raises(InvalidInput, match="9 ranks for 7 clients"):
            dealt(row_job("plain"), Ranks(0, 9))

    def test_other_verbs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", "0")
        check_launch(["run", "job.toml"])
        with pytest.raises(
            InvalidInput, match=r"torchrun starts 'ifca run, compare' and 'resume', not 'tune'"
        ):
            check_launch(["tune"])
        assert workers_of(None, "cpu") == 1
        monkeypatch.setenv("RANK", "1")
        with pytest.raises(SystemExit):
            check_launch(["tune"])


def test_shares_are_even_and_hold_everybody_once() -> None:
    sizes = np.array([100, 1, 50, 2, 51, 99])
    shares = Ranks(0, 2).shares(sizes)
    assert sorted(np.concatenate(shares).tolist()) == list(range(6))
    assert [int(sizes[share].sum()) for share in shares] == [153, 150]


def test_only_the_leading_rank_keeps_all_data() -> None:
    job = row_job("plain")
    first, second = (dealt(job, Ranks(rank, 2)) for rank in range(2))
    assert first.federation is job.federation
    assert len(second.federation.train.x) == 0
    assert second.federation.train.ids == job.federation.train.ids
    assert first.mine is not None
    assert second.mine is not None
    assert len(first.mine) + len(second.mine) == 7
    assert second.federation.count_classes() == job.federation.count_classes()
