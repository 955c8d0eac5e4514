"""The command line as a user meets it: what it prints, what it leaves, how it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ifca.cli.main import _how_to_go_on, app
from ifca.data import Client, rotated_digits, write_client
from ifca.runs.config import read_config
from ifca.runs.own_data_config import TableData
from ifca.runs.presets import PRESETS, presets
from tests.files import write_cifar

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SMALL = ["rounds=8", "data.samples=150", "model.hidden=[8]", "restarts=2"]
SUMMARY_KEYS = {
    *("algorithm", "engine", "device", "seed", "k", "rounds", "clients", "test_accuracy", "train_loss"),
    *("cluster_sizes", "live_clusters", "cluster_accuracy", "adjusted_rand_index"),
    *("bytes_down", "bytes_up", "seconds", "seconds_per_round"),
}


def ifca(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ifca", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT)


def small(*more: str) -> list[str]:
    return [part for setting in (*SMALL, *more) for part in ("--set", setting)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A small default job, and what it printed."""
    here = tmp_path_factory.mktemp("cli")
    done = ifca("run", "--out", "out", "--device", "cpu", *small(), cwd=here)
    assert done.returncode == 0, done.stderr
    return here / "out", done.stdout


def test_run_prints_the_comparison_and_the_folder(finished: tuple[Path, str]) -> None:
    _, printed = finished
    for word in ("IFCA", "global", "local", "one-shot", "true 270", "run folder: out", "round 8/8, loss"):
        assert word in printed


def test_the_folder_is_complete(finished: tuple[Path, str]) -> None:
    out, _ = finished
    names = {file.name for file in out.iterdir()}
    files = {"config.toml", "rounds.jsonl", "summary.json", "models.safetensors", "clients.csv"}
    assert files | {"accuracy.png", "identities.png", "restarts", "baselines"} <= names
    assert (out / "restarts" / "0" / "checkpoint.safetensors").exists()
    summary = json.loads((out / "summary.json").read_text())
    assert summary.keys() >= SUMMARY_KEYS
    assert set(summary["baselines"]) == {"ifca-plain", "global", "local", "oneshot"}
    for baseline in summary["baselines"].values():
        assert baseline.keys() >= SUMMARY_KEYS
    assert len(summary["restarts"]) == 2
    losses = [restart["train_loss"] for restart in summary["restarts"]]
    assert summary["train_loss"] == min(losses) == losses[summary["kept_restart"]]
    assert summary["bytes_down"] == sum(restart["bytes_down"] for restart in summary["restarts"])
    assert len((out / "rounds.jsonl").read_text().splitlines()) == summary["rounds"] == 8
    for figure in ("accuracy.png", "identities.png"):
        assert (out / figure).read_bytes().startswith(b"\x89PNG")


def test_assign_finds_the_cluster_of_a_new_client(finished: tuple[Path, str], tmp_path: Path) -> None:
    out, _ = finished
    clients = rotated_digits(samples=150).train
    first = slice(0, 150)
    write_client(tmp_path / "new.npz", Client(clients.x[first].numpy(), clients.y[first].numpy()))
    done = ifca("assign", str(out), "new.npz", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = (out / "clients.csv").read_text().splitlines()
    cells = dict(zip(rows[0].split(","), rows[1].split(","), strict=True))
    assert found["cluster"] == int(cells["cluster"])
    assert found["losses"] == pytest.approx([float(cells[f"loss_{j}"]) for j in range(4)], rel=1e-5)
    assert (
        f"belongs to cluster {found['cluster']}" in ifca("assign", str(out), "new.npz", cwd=tmp_path).stdout
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            {"x": np.zeros((3, 5)), "y": np.zeros(3, int)},
            "bad.npz: samples have shape (5,), training had (8, 8)",
        ),
        (
            {"x": np.zeros((3, 8, 8)), "y": np.full(3, 0.5)},
            "bad.npz: the label in row 0 is not a whole number",
        ),
        ({"x": np.zeros((3, 8, 8)), "y": np.array([0, 1, 10])}, "label 10 in row 2, but classes is 10"),
        ({"x": np.zeros((3, 5))}, "client bad: samples have shape (5,), training had (8, 8)"),
        ({"y": np.zeros(3, int)}, "bad.npz: has no array x"),
    ],
)
def test_assign_refuses_what_does_not_fit(
    finished: tuple[Path, str], tmp_path: Path, content: dict[str, np.ndarray], complaint: str
) -> None:
    np.savez(tmp_path / "bad.npz", **content)  # type: ignore[arg-type]
    assert_refused(ifca("assign", str(finished[0]), "bad.npz", cwd=tmp_path), complaint)


def assert_refused(done: subprocess.CompletedProcess[str], complaint: str, code: int = 2) -> None:
    assert done.returncode == code, done.stderr
    assert complaint in done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("your code: ")]
    assert len(said) == 1  # one sentence, no traceback
    assert said[0].startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "complaint", "code"),
    [
        (["run", "nowhere.toml"], "nowhere.toml: no such config file", 2),
        (["run", "--set", "kk=1"], "unknown key kk; did you mean k?", 2),
        (["rnu"], "Did you mean 'run'?", 2),
        (["run", "--labl", "y"], "No such option: --labl; did you mean --label?", 2),
        (["run", "--rounds", "5"], "rounds is a key of the config: --set rounds=5", 2),
        (["run", "nowhere", "--label", "y"], "nowhere: no such file or folder", 2),
        (["run", "book.xlsx", "--label", "y"], "book.xlsx: is a spreadsheet; save its table as .csv", 2),
        (["run", "--preset", "mnist"], "no such preset; did you mean mnist-writers or rotated-mnist?", 2),
        (["run", "--preset", "zzz"], "there is no such preset (known: rotated-digits, clinics, ", 2),
        (["run", "rotated-mnist"], "no such config file; did you mean --preset rotated-mnist?", 2),
        (["run", "job.toml", "--preset", "femnist"], "give job.toml or --preset femnist, not both", 2),
        (["run", "job.toml", "--label", "y"], "--label: is for a table or a folder of tables", 2),
        (["run", "."], "is a folder without a config.toml and without files of data", 2),
        (["federate", "simulate", "."], ".: is a folder without a config.toml", 2),
        (["run", "--set", "k=1000"], "k is 1000, but the federation has only 112 clients", 2),
        (["run", "--set", "step_size=1e30", "--out", "diverged"], "training diverged", 1),
        (["run", "--set", "memory_budget=1", "--set", "model.hidden=[90000]"], "smallest that works is", 2),
        (["run", "--device", "cuda"], "no CUDA device", 2),
        (["run", "--engine", "spark"], "engine must be one of loop, vectorised, flower", 2),
        (["run", "--out", "/dev/null/x"], "/dev/null", 1),
        (["run", "--unknown"], "No such option", 2),
        (["resume", "nowhere"], "nowhere: no such run folder", 2),
        (["assign", "nowhere", "x.npz"], "nowhere: no such run folder", 2),
        (["resume"], "Missing argument", 2),
    ],
)
def test_wrong_input_is_one_sentence(arguments: list[str], complaint: str, code: int, tmp_path: Path) -> None:
    assert_refused(ifca(*arguments, cwd=tmp_path), complaint, code)


def test_a_refused_job_leaves_no_folder(tmp_path: Path) -> None:
    """Ifca's k is only the most, but its baselines need theirs: that is said before anything is trained."""
    for method in ("ifca-plain", "ifca"):
        done = ifca("run", "--set", f"algorithm={method}", "--set", "k=1000", "--out", "x", cwd=tmp_path)
        assert "k is 1000, but the federation has only 112 clients" in done.stderr
        assert list(tmp_path.iterdir()) == []


def test_own_folder_and_own_model(tmp_path: Path) -> None:
    """A user's data folder and a user's module, from a config file; regression, no true clusters."""
    rng = np.random.default_rng(0)
    (tmp_path / "clients").mkdir()
    for i in range(6):
        x = rng.normal(size=(20, 3))
        y = x @ np.array([1.0, 2.0, 3.0]) * (1 if i % 2 else -1)
        write_client(tmp_path / "clients" / f"sensor{i}.npz", Client(x[:15], y[:15], x[15:], y[15:]))
    model = "from torch import nn\n\ndef make():\n    return nn.Linear(3, 1)\n"
    (tmp_path / "mine.py").write_text(model)
    (tmp_path / "config.toml").write_text(
        "k = 2\nrounds = 30\nrestarts = 2\n[data]\nname = 'folder'\npath = 'clients'\n"
        "[model]\nname = 'mine:make'\n"
    )
    done = ifca("compare", "config.toml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert sorted(summary["cluster_sizes"]) == [3, 3]
    assert summary["test_accuracy"] is None
    assert summary["test_loss"] < 1e-3
    assert summary["cluster_accuracy"] is None
    assert set(summary["baselines"]) == {"ifca-plain", "global", "local", "oneshot", "clove"}
    assert summary["baselines"]["global"]["test_loss"] > 1
    np.savez(tmp_path / "wide.npz", x=np.zeros((4, 3)), y=np.zeros((4, 2)))
    assert_refused(ifca("assign", "out", "wide.npz", cwd=tmp_path), "wide.npz: y has 2 target(s) a sample")
    warm = ifca("run", "config.toml", "--set", "warm_start='out'", "--set", "rounds=1", cwd=tmp_path)
    assert warm.returncode == 0, warm.stderr
    again = json.loads((tmp_path / "runs" / "folder-ifca-001" / "summary.json").read_text())
    assert again["train_loss"] == pytest.approx(summary["train_loss"], abs=1e-6)


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ifca", "run", "--out", "out", *small("rounds=5000")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=ENVIRONMENT
    )
    for _ in range(6000):
        if list(tmp_path.rglob("checkpoint.safetensors")):
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors == "error: interrupted; 'ifca resume' goes on from the last checkpoint\n"


def test_ctrl_c_does_not_wait_for_a_thread_that_never_ends() -> None:
    """As Flower's may, once Ray is gone."""
    code = """
import threading
from ifca.cli import main as cli
def interrupted(**_options):
    threading.Thread(target=threading.Event().wait).start()
    raise KeyboardInterrupt
cli.app = interrupted
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 130
    assert done.stderr == "error: interrupted\n"


@pytest.mark.parametrize(("verb", "how"), [("reproduce", "; the same command goes on"), ("bench", "")])
def test_ctrl_c_advises_what_the_command_can_do(verb: str, how: str) -> None:
    assert _how_to_go_on([verb, "all"]) == how


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("def make(): raise KeyError('oops')", "making it failed (KeyError: 'oops')"),
        ("def make(x): return x", "making it failed (TypeError"),
        ("def make() return 3", "cannot import mine:make (SyntaxError"),
        ("make = 3", "a function that makes one, got 3"),
        ("def make(): return 3", "a torch.nn.Module is needed, got int"),
    ],
)
def test_own_models_that_fail(code: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code)
    assert_refused(ifca("run", "--set", "model.name='mine:make'", cwd=tmp_path), complaint)
    assert not (tmp_path / "runs").exists()


def test_help_and_version(tmp_path: Path) -> None:
    assert "resume" in ifca("--help", cwd=tmp_path).stdout
    assert ifca("--version", cwd=tmp_path).stdout.startswith("ifca ")
    assert ifca(cwd=tmp_path).returncode in (0, 2)
    told = ifca("--version", "--verbose", cwd=tmp_path).stdout
    assert told == ifca("version", cwd=tmp_path).stdout
    assert f"torch {torch.__version__}\ndevice c" in told


def test_data_sets_are_listed_and_checked(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar10")
    listed = CliRunner().invoke(app, ["data", "list", "--data-dir", str(tmp_path)])
    assert listed.exit_code == 0
    for word in ("mnist-writers", "femnist", "not here", "cifar10", f"looked in: {tmp_path}"):
        assert word in listed.stdout
    done = ifca("data", "check", "--data-dir", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "mnist: not here; 'ifca data get mnist'" in done.stdout
    assert "data_batch_1.bin: its content is not that of the public data set (altered)" in done.stdout


def test_a_run_without_its_data_says_how_to_get_them(tmp_path: Path) -> None:
    data = f"data={{name='rotated-mnist', folder='{tmp_path}'}}"
    refused = ifca("run", "--set", data, cwd=tmp_path)
    assert_refused(refused, "train-images-idx3-ubyte.gz: no such file; 'ifca data get mnist' fetches it")


CLINICS = PRESETS / "clinics.csv"


def test_presets_are_listed_and_run(tmp_path: Path) -> None:
    listed = ifca("run", "--list", cwd=tmp_path).stdout
    for name, about in presets().items():
        assert name in listed
        assert about in listed
        assert 30 < len(about) < 111
    assert {"rotated-digits", "rotated-mnist", "rotated-cifar", "femnist", "synthetic-a"} <= set(presets())
    quick = ["--set", "rounds=3", "--set", "baselines=[]"]
    done = ifca("run", "--preset", "clinics", "--out", "out", *quick, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    config = read_config(tmp_path / "out" / "config.toml")
    assert isinstance(config.data, TableData)
    assert (config.rounds, config.data.client, Path(config.data.path)) == (3, "clinic", CLINICS)


def test_a_table_is_run_without_a_config(tmp_path: Path) -> None:
    (tmp_path / "clinics.csv").write_text(CLINICS.read_text())
    columns = ["--label", "outcome", "--client", "clinic"]
    done = ifca("run", "clinics.csv", *columns, "--out", "out", "--set", "rounds=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    config = read_config(tmp_path / "out" / "config.toml")
    assert isinstance(config.data, TableData)
    assert config.baselines == ("global", "local")
    data = config.data
    assert (data.client, data.label, data.standardise, data.test_share) == (
        "clinic",
        ("outcome",),
        "auto",
        0.2,
    )
    for given, missing in (
        (columns[:2], "--client is missing, the column that says whose a row is"),
        (columns[2:], "--label is missing, the column to predict"),
    ):
        assert_refused(ifca("run", "clinics.csv", *given, cwd=tmp_path), missing)
    assert_refused(ifca("run", "out", cwd=tmp_path), "out: is the folder of a run; 'ifca resume out' goes on")


def test_a_folder_of_tables_is_run_without_a_config(tmp_path: Path) -> None:
    head, *rows = CLINICS.read_text().splitlines()
    (tmp_path / "clinics").mkdir()
    for name in sorted({row.split(",")[0] for row in rows})[:4]:
        own = [row.partition(",")[2] for row in rows if row.startswith(name)]
        (tmp_path / "clinics" / f"{name}.csv").write_text("\n".join([head.partition(",")[2], *own, ""]))
    assert_refused(ifca("run", "clinics", cwd=tmp_path), "'ifca run clinics --label COLUMN'")
    settings = ["--label", "outcome", "--set", "rounds=2", "--set", "baselines=[]"]
    done = ifca("run", "clinics", *settings, "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["clients"] == 4
    project = ifca("init", "project", cwd=tmp_path)
    assert project.returncode == 0
    assert_refused(
        ifca("run", "project", cwd=tmp_path), "project: is a folder; 'ifca run project/config.toml'"
    )
