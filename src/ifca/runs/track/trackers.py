"""Trackers, where teams already look: TensorBoard and MLflow (the extra [track]), told as any callback is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from ifca.core.callbacks import Callback, Record, Training
from ifca.core.errors import InvalidInput

ROUND = (
    *("train_loss", "test_accuracy", "test_accuracy_train_rule", "test_loss", "cluster_accuracy"),
    *("adjusted_rand_index", "adjusted_rand_index_known", "nmi", "nmi_known", "participants"),
    *("live_clusters", "bytes_down", "bytes_up", "seconds"),
)
BY_CLUSTER = ("cluster_sizes", "cluster_train_loss", "cluster_test_accuracy", "cluster_test_loss")
FINAL = (
    *("train_loss", "test_accuracy", "test_accuracy_train_rule", "test_loss", "test_loss_train_rule"),
    *("test_accuracy_worst_tenth", "test_loss_worst_tenth", "test_accuracy_unseen", "test_loss_unseen"),
    *("cluster_accuracy", "adjusted_rand_index", "nmi", "rounds_to_ari_0.9", "live_clusters"),
    *("bytes_down", "bytes_up", "seconds"),
)
TRACKERS = {"tensorboard": "tensorboard", "mlflow": "mlflow"}
"""Name -> the package it needs."""


def numbers(record: Record) -> dict[str, float]:
    """What is known of a round, by name; of cluster j: name/j."""
    found = {name: record[name] for name in ROUND if record.get(name) is not None}
    for name in BY_CLUSTER:
        values = record.get(name) or []
        found |= {f"{name}/{j}": value for j, value in enumerate(values) if value is not None}
    return {name: float(value) for name, value in found.items()}


def final_numbers(summary: dict[str, Any]) -> dict[str, float]:
    """What came out, by name: final/name."""
    return {f"final/{name}": float(summary[name]) for name in FINAL if summary.get(name) is not None}


def make_tracker(name: str, folder: Path) -> Callback:
    """A tracker by name; folder: the run's."""
    if name not in TRACKERS:
        raise InvalidInput(f"--track {name}: expected one of {', '.join(TRACKERS)}")
    if importlib.util.find_spec(TRACKERS[name]) is None:
        raise InvalidInput(f"--track {name} needs the package {TRACKERS[name]}: pip install 'ifca[track]'")
    if name == "tensorboard":
        from ifca.runs.track.to_tensorboard import TensorBoard

        return TensorBoard(folder / "tensorboard")
    from ifca.runs.track.to_mlflow import MLflow

    try:
        return MLflow(folder)
    except Exception as reason:
        raise InvalidInput(f"--track mlflow: {' '.join(str(reason).split())}") from reason


def trackers(names: list[str] | None, folder: Path) -> list[Callback]:
    """The trackers asked for, for a run in a folder."""
    return [Guarded(name, make_tracker(name, folder)) for name in dict.fromkeys(names or [])]


class Guarded:
    """A tracker that may fail without the run: it is told no more, and that is said once."""

    def __init__(self, name: str, inner: Callback) -> None:
        self._name = name
        self._inner: Callback | None = inner

    def started(self, training: Training) -> None:
        """Pass it on."""
        self._try("started", training)

    def round_ended(self, record: Record) -> None:
        """Pass it on."""
        self._try("round_ended", record)

    def finished(self, summary: dict[str, Any]) -> None:
        """Pass it on."""
        self._try("finished", summary)

    def _try(self, method: str, told: object) -> None:
        if self._inner is None:
            return
        try:
            getattr(self._inner, method)(told)
        except Exception as reason:  # noqa: BLE001
            self._inner = None
            words = " ".join(str(reason).split())[:300]
            sys.stderr.write(f"warning: --track {self._name} stopped ({words}); the run goes on without it\n")
