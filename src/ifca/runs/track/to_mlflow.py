"""MLflow: a run per training, at the store that MLflow's own settings name (MLFLOW_TRACKING_URI)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from ifca.core.callbacks import Record, Training
from ifca.data.files import write_atomically
from ifca.data.formats.json_file import read_json
from ifca.runs.track.trackers import final_numbers, numbers

EXPERIMENT = "MLFLOW_EXPERIMENT_NAME"
BATCH = 500  # numbers in one message; MLflow takes 1000
LONGEST = 500  # letters of a setting
RUNS = "mlflow.json"


class MLflow:
    """Writes rounds as metrics; step: rounds done.

    folder: where the ids of MLflow's runs are kept, so that a training that goes on is the same run there;
    points that the store has are not written again. None: every training is a new run.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._client = MlflowClient()
        self._folder = folder
        self._id = ""
        self._known: dict[str, set[int]] = {}  # the steps that the store has, by metric

    def started(self, training: Training) -> None:
        """A new run there, or the one that was begun before."""
        self._open(training.title, training.settings)
        self._write([pair for record in training.history for pair in _points(record)])

    def round_ended(self, record: Record) -> None:
        """Write a round."""
        self._write(_points(record))

    def finished(self, summary: dict[str, Any]) -> None:
        """Write what came out, to the run of the algorithm's name, and end it."""
        before = self._id
        self._open(summary["algorithm"], summary.get("config", {}))
        self._write([(name, value, summary["rounds"]) for name, value in final_numbers(summary).items()])
        for run in {before, self._id} - {""}:
            self._client.set_terminated(run)

    def _open(self, title: str, settings: dict[str, Any]) -> None:
        runs = self._runs()
        if title in runs:
            self._id = runs[title]
            self._client.update_run(self._id, status="RUNNING")
            names = self._client.get_run(self._id).data.metrics
            history = {name: self._client.get_metric_history(self._id, name) for name in names}
            self._known = {name: {point.step for point in points} for name, points in history.items()}
            return
        where = {} if self._folder is None else {"ifca.folder": str(self._folder.resolve())}
        name = title if self._folder is None else f"{self._folder.name}: {title}"
        self._id = self._client.create_run(self._experiment(), run_name=name, tags=where).info.run_id
        self._known = {}
        params = [Param(key, value[:LONGEST]) for key, value in _flat(settings).items()]
        self._client.log_batch(self._id, params=params[:100])
        if self._folder is not None:
            write_atomically(self._folder / RUNS, json.dumps(runs | {title: self._id}, indent=2).encode())

    def _runs(self) -> dict[str, str]:
        file = None if self._folder is None else self._folder / RUNS
        return read_json(file, dict[str, str]) if file is not None and file.is_file() else {}

    def _experiment(self) -> str:
        name = os.environ.get(EXPERIMENT, "ifca")
        found = self._client.get_experiment_by_name(name)
        made: str = self._client.create_experiment(name) if found is None else found.experiment_id
        return made

    def _write(self, points: list[tuple[str, float, int]]) -> None:
        now = int(1000 * time.time())
        new = [
            Metric(name, value, now, step)
            for name, value, step in points
            if step not in self._known.setdefault(name, set())
        ]
        for start in range(0, len(new), BATCH):
            self._client.log_batch(self._id, metrics=new[start : start + BATCH])
        for metric in new:
            self._known[metric.key].add(metric.step)


def _points(record: Record) -> list[tuple[str, float, int]]:
    return [(name, value, record["round"] + 1) for name, value in numbers(record).items()]


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings by dotted name, those that are set."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            found[prefix + key] = str(value)
    return found
