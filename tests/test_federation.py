"""Federations as a user starts them: Flower's simulation and its real processes, on this machine."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ifca.engines.checkpoint import load_tensors
from ifca.experiments.config import read_config
from ifca.experiments.run import run

pytest.importorskip("flwr")

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SMALL = ["rounds=3", "data.samples=300", "model.hidden=[8]", "restarts=1", "device=cpu", "stable_after=1"]


def settings(*more: str) -> list[str]:
    return [part for setting in (*SMALL, *more) for part in ("--set", setting)]


def ifca(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ifca", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT)


def assert_same_result(mine: Path, other: Path) -> None:
    """Models to 1e-6 and the clients' clusters."""
    ours, theirs = load_tensors(mine / "models.safetensors")[0], load_tensors(other / "models.safetensors")[0]
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-6, atol=1e-6)
    with (mine / "clients.csv").open() as a, (other / "clients.csv").open() as b:
        rows = [(row["id"], row["cluster"], row["test_accuracy"]) for row in csv.DictReader(a)]
        assert rows == [(row["id"], row["cluster"], row["test_accuracy"]) for row in csv.DictReader(b)]


@pytest.mark.xdist_group("processes")
def test_simulation_equals_the_loop_and_goes_on(tmp_path: Path) -> None:
    baselines = 'baselines=["oneshot"]'
    done = ifca("federate", "simulate", "--out", "flower", *settings(baselines), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "round 3/3, loss" in done.stdout
    assert "Traceback" not in done.stderr
    loop = tmp_path / "loop"
    run(read_config(None, [*SMALL, baselines, "engine=loop"]), loop)
    for part in (".", "baselines/oneshot"):
        assert_same_result(tmp_path / "flower" / part, loop / part)
    summary = json.loads((tmp_path / "flower" / "summary.json").read_text())
    assert summary["engine"] == "flower"
    assert summary["faults"] == {}
    assert ifca("resume", "flower", cwd=tmp_path).returncode == 0  # finished: nothing to do


def test_flower_is_not_for_run(tmp_path: Path) -> None:
    done = ifca("run", "--out", "out", "--engine", "flower", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: engine flower needs a federation")
    assert not (tmp_path / "out").exists()
