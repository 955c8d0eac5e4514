"""Trackers with the real packages: every round once, however often the run was interrupted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ifca import IFCA
from ifca.cli.main import main
from ifca.core.callbacks import Callback, Record, Several, Training
from ifca.core.errors import InvalidInput
from ifca.runs.config import read_config
from ifca.runs.run import resume, run
from ifca.runs.track.trackers import TRACKERS, make_tracker, numbers, trackers
from tests.conftest import groups

SMALL = ["rounds=8", "data.samples=150", "model.hidden=[8]", "device=cpu", 'baselines=["global"]']
pytestmark = pytest.mark.xdist_group("track")


class StopAt:
    """Stands for a kill after some round."""

    def __init__(self, last: int) -> None:
        self.last = last

    def started(self, training: Training) -> None: ...

    def round_ended(self, record: Record) -> None:
        if record["round"] == self.last:
            raise KeyboardInterrupt

    def finished(self, summary: dict[str, Any]) -> None: ...


def interrupted(out: Path, *names: str) -> list[Record]:
    """Trackers are told of a run that is cut off two rounds after its checkpoint, and of the rest of it."""

    def all_of(*more: Callback) -> Several:
        return Several([*[make_tracker(name, out) for name in names], *more])

    with pytest.raises(KeyboardInterrupt):
        run(read_config(None, [*SMALL, "checkpoint_every=3"]), out, all_of(StopAt(4)))
    resume(out, all_of())
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


def test_tensorboard_has_every_round_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    records = interrupted(tmp_path / "run", "tensorboard")
    found = EventAccumulator(str(tmp_path / "run" / "tensorboard" / "ifca"), {"scalars": 0}).Reload()
    for name in ("train_loss", "test_accuracy", "bytes_down"):
        points = [(point.step, point.value) for point in found.Scalars(name)]
        assert points == [(r["round"] + 1, pytest.approx(r[name], rel=1e-6)) for r in records]
    assert len(found.Scalars("cluster_sizes/0")) == 8
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    (final,) = found.Scalars("final/test_accuracy")
    assert (final.step, final.value) == (8, pytest.approx(summary["test_accuracy"]))
    assert (tmp_path / "run" / "tensorboard" / "global").is_dir()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MLflow's own use of its packages
def test_mlflow_has_every_round_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    records = interrupted(tmp_path / "run", "mlflow")
    client = MlflowClient()
    experiment = client.get_experiment_by_name("ifca")
    assert experiment is not None
    stored = {one.info.run_name: one for one in client.search_runs([experiment.experiment_id])}
    assert set(stored) == {"run: ifca", "run: global"}
    one = stored["run: ifca"]
    assert (one.info.status, one.data.params["k"], one.data.params["data.samples"]) == (
        "FINISHED",
        "4",
        "150",
    )
    for name in numbers(records[-1]):
        history = client.get_metric_history(one.info.run_id, name)
        told = [(r["round"] + 1, numbers(r)[name]) for r in records if name in numbers(r)]
        points = sorted((point.step, point.value) for point in history)
        if name == "seconds":  # a round that is done again takes its own time; the first is kept
            points, told = [(step, 0.0) for step, _ in points], [(step, 0.0) for step, _ in told]
        assert points == told
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert one.data.metrics["final/train_loss"] == summary["train_loss"]


class Notes:
    """A callback of a user's own."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def started(self, training: Training) -> None:
        self.told.append((training.title, training.rounds, len(training.history), training.settings["k"]))

    def round_ended(self, record: Record) -> None:
        self.told.append(record["round"])

    def finished(self, summary: dict[str, Any]) -> None:
        self.told.append(summary["train_loss"])


def test_a_callback_of_ones_own_in_python() -> None:
    notes = Notes()
    fitted = IFCA(k=1, rounds=2, restarts=2, algorithm="ifca-plain", callbacks=[notes]).fit(
        groups((9, 8, 7, 6))
    )
    first, second = ("ifca-plain 1/2", 2, 0, 1), ("ifca-plain 2/2", 2, 0, 1)
    assert notes.told == [first, 0, 1, second, 0, 1, fitted.train_loss_]


def test_a_callback_of_a_run_hears_what_was_done_before(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(read_config(None, [*SMALL, "baselines=[]", "checkpoint_every=3"]), tmp_path / "run", StopAt(4))
    notes = Notes()
    summary = resume(tmp_path / "run", notes)
    assert notes.told == [("ifca", 8, 3, 4), 3, 4, 5, 6, 7, summary["train_loss"]]


def test_a_tracker_that_fails_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("where the folder of event files should be")
    (tracker,) = trackers(["tensorboard", "tensorboard"], tmp_path / "file")
    summary = run(read_config(None, [*SMALL, "rounds=2"]), tmp_path / "run", tracker)
    assert summary["rounds"] == 2
    errors = capsys.readouterr().err
    assert errors.startswith("warning: --track tensorboard stopped (")
    assert errors.count("\n") == 1


def test_unknown_and_missing_trackers_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidInput, match="--track wandb: expected one of tensorboard, mlflow"):
        trackers(["wandb"], tmp_path)
    monkeypatch.setitem(TRACKERS, "mlflow", "a_package_that_is_not_there")
    monkeypatch.setattr(sys, "argv", ["ifca", "run", "--track", "mlflow", "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert (
        "needs the package a_package_that_is_not_there: pip install 'ifca[track]'" in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


def test_a_store_that_mlflow_refuses_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://store")
    with pytest.raises(InvalidInput, match=r"--track mlflow: .*nonsense"):
        trackers(["mlflow"], tmp_path)
