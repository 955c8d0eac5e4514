"""The examples run, and the one by hand equals the library."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ifca.core.recipe import Option, Recipe
from ifca.data import rotated_digits
from ifca.engines import Job, fit
from ifca.models import mlp

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("option", ["model", "gradient"])
def test_ifca_by_hand_equals_the_library(option: Option) -> None:
    by_hand = runpy.run_path(str(EXAMPLES / "ifca_by_hand.py"))["ifca_by_hand"]
    federation = rotated_digits(samples=150)
    theta, labels = by_hand(federation, 4, 5, 0.1, 10, option, 0)
    recipe = Recipe(algorithm="ifca-plain", k=4, rounds=5, step_size=0.1, local_steps=10, option=option)
    fitted = fit(Job(federation, recipe, lambda: mlp(64, 10)))
    assert torch.equal(labels, fitted.labels)
    for name, value in fitted.state.theta.items():
        torch.testing.assert_close(theta[name], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_examples_run(example: Path) -> None:
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # tests run side by side
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_flower_app_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The apps of examples/federation as Flower would load them, over a grid inside this process."""
    pytest.importorskip("flwr")
    from ifca.engines.flower.local_grid import LocalGrid

    monkeypatch.syspath_prepend(str(EXAMPLES / "federation"))
    client = runpy.run_path(str(EXAMPLES / "federation" / "client_app.py"))["app"]
    server = runpy.run_path(str(EXAMPLES / "federation" / "server_app.py"))["app"]
    grid = LocalGrid(client, 6, {"out": str(tmp_path / "run"), "rounds": 4, "min-clients": 5})
    context = grid._contexts[1]
    server(grid=grid, context=context)
    assert (tmp_path / "run" / "summary.json").exists()
