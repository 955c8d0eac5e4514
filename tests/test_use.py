"""A finished run put to use: assignments with their margin, predictions, exported models."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ifca.cli.main import app, main
from ifca.core.errors import InvalidInput
from ifca.models import mlp
from ifca.runs.config import read_config
from ifca.runs.run import run
from ifca.runs.usual import usual_losses
from ifca.use.assign import assign_clients
from ifca.use.export import Served, export_model
from ifca.use.opened_run import open_trained
from ifca.use.personal import Tuning
from ifca.use.predict import predict

RULES = np.array([[2.0, -1.0, 0.5], [-1.0, 2.0, 0.0]])


def draw(kind: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Readings far from zero and of uneven scale, and what they mean on a machine of one kind."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    return z * [1, 10, 100] + [5, 50, 500], z @ RULES[kind] + rng.normal(0, 0.1, n)


def write(file: Path, x: np.ndarray, y: np.ndarray | None, names: str = "abc") -> None:
    with file.open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow([*names, *([] if y is None else ["load"])])
        order = ["abc".index(name) for name in names]
        for i, row in enumerate(x[:, order].tolist()):
            table.writerow([*row, *([] if y is None else [y[i]])])


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty clients of two kinds as .csv files, trained with standardised features."""
    here = tmp_path_factory.mktemp("use")
    (here / "clients").mkdir()
    for i in range(20):
        write(here / "clients" / f"m{i:02d}.csv", *draw(i % 2, 40, i))
    config = (
        "k = 2\nrounds = 15\nstep_size = 0.1\n[data]\nname = 'folder'\nlabel = 'load'\nstandardise = true\n"
        f"test_share = 0.2\npath = '{here / 'clients'}'\n[model]\nname = 'mlp'\nhidden = [8]\n"
    )
    (here / "job.toml").write_text(config)
    run(read_config(here / "job.toml"), here / "run")
    return here


def table_of(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text().splitlines()))


def of_kind(here: Path, kind: int) -> int:
    """The cluster of a kind of machine."""
    rows = table_of(here / "run" / "clients.csv")
    labels = [int(row["cluster"]) for row in rows]
    assert len({*labels[0::2]}) == len({*labels[1::2]}) == 1  # the run separated them
    assert labels[0] != labels[1]
    return labels[kind]


def test_new_clients_find_their_cluster_with_a_margin(here: Path, tmp_path: Path) -> None:
    for kind in (0, 1):
        write(tmp_path / f"new{kind}.csv", *draw(kind, 30, 100 + kind), names="cab")  # columns by name
    found = assign_clients(here / "run", tmp_path)
    assert [one["client"] for one in found] == ["new0", "new1"]
    for kind, one in enumerate(found):
        best, other = of_kind(here, kind), of_kind(here, 1 - kind)
        assert (one["cluster"], one["second"], one["warnings"]) == (best, other, [])
        assert one["margin"] == pytest.approx(one["losses"][other] - one["losses"][best], rel=1e-4)
        assert one["margin_in_errors"] > 2
        assert one["losses"][best] < one["usual_loss"] < one["losses"][other]
    shown = CliRunner().invoke(app, ["assign", str(here / "run"), str(tmp_path)])
    assert shown.exit_code == 0
    assert "new0" in shown.stdout
    alone = CliRunner().invoke(app, ["assign", str(here / "run"), str(tmp_path / "new0.csv"), "--json"])
    assert json.loads(alone.stdout) == found[0]


def test_a_client_that_no_model_fits_is_told(here: Path, tmp_path: Path) -> None:
    x, y = draw(0, 30, 7)
    write(tmp_path / "odd.csv", x, 5 * y[::-1])
    found = assign_clients(here / "run", tmp_path / "odd.csv")[0]
    assert "no model fits it" in found["warnings"][0]
    assert predict(here / "run", tmp_path / "odd.csv").warnings == tuple(found["warnings"])
    write(tmp_path / "few.csv", x[:2], y[:2])
    few = assign_clients(here / "run", tmp_path / "few.csv")[0]
    assert "it has 2 sample(s): its cluster is a guess" in few["warnings"]


def test_the_usual_loss_is_the_tail_of_the_training_clients(here: Path) -> None:
    rows = table_of(here / "run" / "clients.csv")
    for j, limit in usual_losses(here / "run").items():
        mine = np.array([float(row["test_loss"]) for row in rows if int(row["test_cluster"]) == j])
        middle = np.median(mine)
        robust = middle + 3 * 1.4826 * np.median(abs(mine - middle))
        assert limit == pytest.approx(max(np.quantile(mine, 0.99), robust))


def test_predictions_come_from_the_clients_cluster(here: Path, tmp_path: Path) -> None:
    x, y = draw(1, 50, 31)
    write(tmp_path / "new.csv", x, y)
    made = predict(here / "run", tmp_path / "new.csv")
    assert made.cluster == of_kind(here, 1)
    assert np.mean((made.outputs[:, 0] - y) ** 2) == pytest.approx(made.report["loss"], rel=1e-4)
    assert made.report["loss"] < 0.1
    rows = list(csv.DictReader(made.table().splitlines()))
    assert [float(row["prediction"]) for row in rows] == pytest.approx(made.outputs[:, 0].tolist())
    write(tmp_path / "silent.csv", x, None, names="bca")
    with pytest.raises(InvalidInput, match="no labels to find its cluster by; give --cluster"):
        predict(here / "run", tmp_path / "silent.csv")
    silent = predict(here / "run", tmp_path / "silent.csv", of_kind(here, 1))
    np.testing.assert_allclose(silent.outputs, made.outputs, rtol=1e-6)
    with pytest.raises(InvalidInput, match="has no cluster 9"):
        predict(here / "run", tmp_path / "silent.csv", 9)


def test_a_table_of_several_clients_is_assigned_client_by_client(tmp_path: Path) -> None:
    rows = [(f"c{i}", *x, y) for i in range(6) for x, y in zip(*draw(i % 2, 20, i), strict=True)]
    for name, some in (("all", rows), ("new", rows[:40])):
        lines = [",".join(map(str, ("site", "a", "b", "c", "y"))), *[",".join(map(str, row)) for row in some]]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    data = f"data={{name='table', path='{tmp_path / 'all.csv'}', client='site', standardise=true}}"
    run(read_config(None, [data, "k=2", "rounds=6", "baselines=[]", "model.name='linear'"]), tmp_path / "run")
    found = assign_clients(tmp_path / "run", tmp_path / "new.csv")
    assert [(one["client"], one["samples"]) for one in found] == [("c0", 20), ("c1", 20)]
    with pytest.raises(InvalidInput, match=r"new\.csv: holds rows of 2 clients"):
        predict(tmp_path / "run", tmp_path / "new.csv")


def test_personalising_helps_who_differs_and_leaves_the_others(here: Path, tmp_path: Path) -> None:
    x, y = draw(0, 60, 55)
    write(tmp_path / "usual.csv", x, y)
    made = predict(here / "run", tmp_path / "usual.csv", None, Tuning())
    assert made.report["after"]["loss"] <= made.report["before"]["loss"]
    write(tmp_path / "other.csv", x, y + 3)  # like its cluster, but for an offset of its own
    made = predict(here / "run", tmp_path / "other.csv", None, Tuning(steps=200, step_size=0.05))
    assert made.report["chosen"] == "tuned, 200 steps"
    assert made.report["after"]["loss"] < 0.3 * made.report["before"]["loss"]
    assert np.mean((made.labels_or_values() - y - 3) ** 2) < 1.2 * made.report["after"]["loss"]
    again = predict(here / "run", tmp_path / "other.csv", None, Tuning())
    assert again.report["after"]["loss"] < again.report["before"]["loss"]
    write(tmp_path / "tiny.csv", x[:3], y[:3])
    with pytest.raises(InvalidInput, match="at least 4 are needed"):
        predict(here / "run", tmp_path / "tiny.csv", None, Tuning())
    with pytest.raises(InvalidInput, match="steps and step size must be positive"):
        predict(here / "run", tmp_path / "other.csv", None, Tuning(steps=0))


@pytest.mark.parametrize("kind", ["pt", "safetensors", "onnx"])
def test_exported_models_give_the_same_outputs_in_other_programs(
    kind: str, here: Path, tmp_path: Path
) -> None:
    if kind == "onnx":
        pytest.importorskip("onnxscript")
    cluster = of_kind(here, 1)
    shown = CliRunner().invoke(
        app, ["export", str(here / "run"), "--cluster", str(cluster), "--to", str(tmp_path / f"m.{kind}")]
    )
    assert shown.exit_code == 0, shown.output
    x, y = draw(1, 20, 9)
    expected = Served(open_trained(here / "run"), cluster)(torch.from_numpy(x).float())[0].numpy()
    assert np.mean((expected[:, 0] - y) ** 2) < 0.1  # raw features in, right answers out
    found = _outputs(tmp_path / f"m.{kind}", x.astype(np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    card = (tmp_path / f"m.{kind}.card.md").read_text()
    for words in (
        "10 of the federation's 20 clients",
        "`a`, `b`, `c`",
        "standardised",
        "test loss",
        "rounds = 15",
        "UTC",
    ):
        assert words in card
    names = [row["id"] for row in table_of(here / "run" / "clients.csv")]
    assert len(names) == 20
    assert not [name for name in names if name in card]  # who the clients are stays in the run's folder
    assert str(here) not in card  # where this machine keeps its files is nobody's business


def _outputs(file: Path, x: np.ndarray) -> Any:
    """As an engineer would compute them who has the file and its card."""
    if file.suffix == ".onnx":
        runtime = pytest.importorskip("onnxruntime")
        return runtime.InferenceSession(str(file)).run(["output"], {"x": x})[0]
    if file.suffix == ".pt":
        content = torch.load(file, weights_only=True)
        state, mean, scale = content["state_dict"], content["mean"], content["scale"]
        target_mean, target_scale = content["target_mean"], content["target_scale"]
    else:
        from safetensors.torch import load_file

        state = load_file(file)
        mean, scale = state.pop("input.mean"), state.pop("input.scale")
        target_mean, target_scale = state.pop("target.mean"), state.pop("target.scale")
    module = mlp(3, 1, (8,))
    module.load_state_dict(state)
    output = module(((torch.from_numpy(x) - mean) / scale).float()) * target_scale + target_mean
    return output.detach().numpy()


NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.input, self.last = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.input(x).tanh()).squeeze(-1)
"""


@pytest.mark.parametrize("kind", ["pt", "safetensors", "onnx"])
def test_a_module_of_ones_own_is_used_as_its_card_says(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One number per sample [n], a layer called input, and a feature far from zero, as a clock gives."""
    far = np.array([0, 0, 1e6])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "clients").mkdir()
    (tmp_path / "clock_net.py").write_text(NET)
    for i in range(4):
        x, y = draw(0, 30, i)
        write(tmp_path / "clients" / f"c{i}.csv", (x / [1, 10, 100] + far).astype(np.float32), y)
    (tmp_path / "job.toml").write_text(
        "k = 1\nrounds = 3\n[data]\nname = 'folder'\npath = 'clients'\nlabel = 'load'\nstandardise = true\n"
        "[model]\nname = 'clock_net:Net'\n"
    )
    run(read_config(tmp_path / "job.toml"), tmp_path / "run")
    expected = predict(tmp_path / "run", tmp_path / "clients" / "c0.csv").outputs[:, 0]
    x = (draw(0, 30, 0)[0] / [1, 10, 100] + far).astype(np.float32)
    file = tmp_path / f"m.{kind}"
    shown = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--cluster", "0", "--to", str(file)])
    assert shown.exit_code == 0, shown.output
    card = file.with_name(f"{file.name}.card.md").read_text()
    code = card.partition("```python\n")[2].partition("```")[0]
    if kind == "onnx":
        pytest.importorskip("onnxruntime")
        names: dict[str, Any] = {"x": x}
        exec(code.replace("session.run", "output, = session.run"), names)
        found = names["output"]
    else:
        names = {"x": torch.from_numpy(x)}
        exec(code, names)
        found = names["output"].detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_classification_pixels_are_part_of_the_export(tmp_path: Path) -> None:
    """Bytes in, probabilities out: the division by 255 is inside the ONNX file."""
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    (tmp_path / "clients").mkdir()
    for i in range(4):
        x = rng.integers(0, 256, (30, 4, 4), dtype=np.uint8)
        np.savez(tmp_path / "clients" / f"c{i}.npz", x=x, y=(x[:, 0, 0] > 127).astype(int))
    settings = [f"data={{name='folder', path='{tmp_path / 'clients'}'}}", "k=1", "rounds=3", "baselines=[]"]
    run(read_config(None, settings), tmp_path / "run")
    export_model(tmp_path / "run", 0, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    x = rng.integers(0, 256, (7, 4, 4), dtype=np.uint8)
    _, probabilities = session.run(None, {"x": x})
    np.savez(tmp_path / "new.npz", x=x)
    made = predict(tmp_path / "run", tmp_path / "new.npz", 0)
    np.testing.assert_allclose(probabilities, made.probabilities, atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["export", "RUN", "--cluster", "0", "--to", "m.tflite"], "m.tflite: a model is written as .pt"),
        (["export", "RUN", "--cluster", "5", "--to", "m.pt"], "has no cluster 5 (it has 0, 1)"),
        (["export", "RUN", "--cluster", "0", "--to", "no/m.pt"], "no: no such folder"),
        (["predict", "RUN", "nowhere.csv"], "nowhere.csv: no such file"),
        (["assign", "RUN", "clients/m00.npz"], "clients/m00.npz: no such file"),
        (["init", "."], ".: already holds something"),
        (["run", "job.toml", "--model", "nowhere:make"], "model.name: cannot import nowhere:make"),
    ],
)
def test_wrong_input_is_one_sentence(
    arguments: list[str],
    complaint: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [str(here / "run") if part == "RUN" else part for part in arguments]
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "argv", ["ifca", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr().err
    assert ended.value.code == 2, printed
    assert complaint in printed
    assert printed.count("\n") == 1


def test_a_new_project_runs_as_it_stands(tmp_path: Path) -> None:
    def ifca(*arguments: str, cwd: Path) -> str:
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "ifca", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=alone)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert CliRunner().invoke(app, ["init", str(tmp_path / "project")]).exit_code == 0
    project = tmp_path / "project"
    ifca("run", "config.toml", "--out", "first", cwd=project)
    summary = json.loads((project / "first" / "summary.json").read_text())
    assert summary["cluster_sizes"] == [10, 10, 10]
    assert summary["test_loss"] < 0.1 < 1 < summary["baselines"]["global"]["test_loss"]
    assert summary["test_metrics"]["absolute_error"] < 0.3
    rows = table_of(project / "first" / "clients.csv")
    mean = np.mean([float(row["test_absolute_error"]) for row in rows])  # all have as many test samples
    assert summary["test_metrics"]["absolute_error"] == pytest.approx(mean)
    last = json.loads((project / "first" / "rounds.jsonl").read_text().splitlines()[-1])
    assert last["test_metrics"] == summary["test_metrics"]
    # from elsewhere, with a loss of its own: the modules are found beside the config
    own = [
        "--set",
        "model.loss='model:loss'",
        "--set",
        "baselines=[]",
        "--set",
        "rounds=3",
        "--out",
        "second",
    ]
    ifca("run", "project/config.toml", *own, "--out", "second", cwd=tmp_path)
    ifca("resume", "../second", cwd=project)
    huber = json.loads((tmp_path / "second" / "summary.json").read_text())
    assert huber["train_loss"] != summary["train_loss"]
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "new.npz", x=20 + 5 * rng.normal(size=(8, 4)), y=rng.normal(size=8))
    assert "belongs to cluster" in ifca("assign", "second", "new.npz", cwd=tmp_path)


def test_without_its_extra_onnx_is_refused_in_words_and_no_temporary_file_is_named(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)  # as where it is not installed
    with pytest.raises(InvalidInput, match=r"^--to: \.onnx files need an extra"):
        export_model(here / "run", 0, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
