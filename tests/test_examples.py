"""The examples run, and the one by hand equals the library."""

from __future__ import annotations

import csv
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Option, Recipe
from ifca.data import mnist_writers, rotated_digits
from ifca.models import mlp
from ifca.runs.clients_table import read_clients
from ifca.runs.config import read_config
from ifca.runs.run import run
from ifca.training import Job, fit
from ifca.use.assign import assign_clients
from ifca.use.personal import Tuning
from ifca.use.predict import predict, predict_clients

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


@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda file: file.stem)
def test_notebooks_run(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell after cell in one namespace, as a notebook does, with fewer rounds; stored without outputs."""
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    content = json.loads(notebook.read_text())
    assert content["nbformat"] == 4
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            code = "".join(cell["source"]).replace("rounds=20", "rounds=3")
            exec(compile(code, notebook.name, "exec"), names)
    plt.close("all")


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


def test_sensors_are_sorted_by_their_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runpy.run_path(str(EXAMPLES / "sensors" / "make_sensors.py"))["main"](tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES / "sensors"))
    config = read_config(EXAMPLES / "sensors" / "config.toml", ["rounds=20", "baselines=[]"])
    summary = run(config, tmp_path / "run")
    assert summary["cluster_sizes"] == [20, 20, 20]
    assert summary["test_metrics"]["mean_error_ppm"] < 4
    found = {one["client"]: one for one in assign_clients(tmp_path / "run", tmp_path / "new")}
    good = [found[name] for name in ("n-as-delivered", "n-weak", "n-turned")]
    assert len({one["cluster"] for one in good}) == 3
    assert not any(one["warnings"] for one in good)
    assert "no model fits it" in found["n-broken"]["warnings"][0]
    tuning = Tuning(steps=300, step_size=0.002)
    tuned = predict(tmp_path / "run", tmp_path / "new" / "n-broken.csv", None, tuning)
    assert tuned.report["after"]["loss"] < 0.05 * tuned.report["before"]["loss"]


def test_hospitals_are_used_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From tables with words and holes to predictions in words; as good as on tables cleaned by hand."""
    folder = EXAMPLES / "hospitals"
    runpy.run_path(str(folder / "make_hospitals.py"))["main"](tmp_path)
    monkeypatch.chdir(tmp_path)
    config = read_config(folder / "config.toml", ["rounds=15", "baselines=['global']"])
    summary = run(config, tmp_path / "run")
    assert summary["cluster_sizes"] == [12, 12]
    assert summary["class_names"] == ("came back", "stayed well")
    assert summary["test_accuracy"] > 0.83
    assert summary["baselines"]["global"]["test_accuracy"] < 0.65
    wards = ("emergency", "medicine", "surgery")
    (tmp_path / "clean").mkdir()
    for file in sorted((tmp_path / "hospitals").glob("*.csv")):
        rows = list(csv.DictReader(file.read_text("utf-8").splitlines()))
        scaled = [[(float(r["age"]) - 55) / 22, (float(r["blood_pressure"] or 130) - 130) / 18] for r in rows]
        said = [[r["sex"] == "male", r["smoker"] == "yes", *(r["ward"] == w for w in wards)] for r in rows]
        x = np.concatenate([np.array(scaled), np.array(said, float)], 1)
        y = [row["outcome"] == "stayed well" for row in rows]
        np.savez(tmp_path / "clean" / f"{file.stem}.npz", x=x, y=np.array(y, int))
    data = f"data={{name='folder', path='{tmp_path / 'clean'}', test_share=0.2}}"
    clean = run(
        read_config(None, [data, "rounds=15", "baselines=[]", "k='auto'", "model.hidden=[200]"]),
        tmp_path / "by-hand",
    )
    assert summary["test_accuracy"] == pytest.approx(clean["test_accuracy"], abs=0.03)
    known, stranger = predict_clients(tmp_path / "run", tmp_path / "new")
    clusters = {row["id"]: int(row["cluster"]) for row in read_clients(tmp_path / "run")}
    assert (known.client, known.cluster, known.labels) == ("h00", clusters["h00"], None)
    assert set(known.labels_or_values().tolist()) == {"came back", "stayed well"}
    assert stranger.report["accuracy"] > 0.75


def test_rotated_digits_finds_four_and_sees_the_mirrored_one(tmp_path: Path) -> None:
    folder = EXAMPLES / "rotated_digits"
    runpy.run_path(str(folder / "new_clients.py"))["main"](tmp_path)
    summary = run(read_config(folder / "config.toml", ["rounds=25", "baselines=[]"]), tmp_path / "run")
    assert summary["cluster_accuracy"] == 1.0
    mirrored, upside_down = assign_clients(tmp_path / "run", tmp_path / "new")
    assert "no model fits it" in mirrored["warnings"][0]
    assert not upside_down["warnings"]
    assert summary["true_clusters"]["180"][upside_down["cluster"]] == 28


def test_mnist_writers_trains(tmp_path: Path) -> None:
    try:
        mnist_writers()
    except InvalidInput:
        pytest.skip("MNIST and its writers are not here")
    settings = ["rounds=3", "data.min_images=120", "baselines=[]", "participation=1.0"]
    summary = run(read_config(EXAMPLES / "mnist_writers" / "config.toml", settings), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["clients"] == summary["clients"] > 10
    assert summary["test_accuracy"] > 0.3
