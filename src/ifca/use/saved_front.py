"""IFCA.save, load, export: fitted models as run folders and as files for other programs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
from torch import nn

from ifca.core.callbacks import Record
from ifca.core.errors import InvalidInput
from ifca.core.numbering import renumbered
from ifca.core.recipe import Recipe
from ifca.core.types import Params
from ifca.models import as_factory
from ifca.models.task import Factory, Loss
from ifca.runs.clients_table import read_clients
from ifca.runs.own_code import Code
from ifca.runs.own_data_config import GivenData
from ifca.runs.results import write_results
from ifca.runs.run_folder import check_unused, new_directory, read_rounds
from ifca.runs.summary_file import finished_summary
from ifca.use.card import write_card
from ifca.use.continue_front import ContinueFront
from ifca.use.export import export_trained
from ifca.use.opened_run import open_trained

Front = TypeVar("Front", bound="SavedFront")


class SavedFront(ContinueFront):
    """The part of IFCA, an estimator of scikit-learn, that writes and reads folders."""

    models_: Params
    history_: list[Record]
    restarts_: list[float]
    train_loss_: float
    stopped_: Any
    step_size_: float
    _reports: list[dict[str, Any]]

    def export(self, cluster: int, to: Path | str) -> Path:
        """Write one cluster's model for other programs (.pt, .safetensors, .onnx); returns its model card."""
        trained, to = self._trained("export"), Path(to)
        checked = export_trained(trained, cluster, to)
        with self._folder() as folder:
            return write_card(folder, cluster, to, checked, trained)

    def save(self, folder: Path | str) -> Path:
        """Write a run folder as 'ifca run' does, which load, open_run and all commands read; without data."""
        if not hasattr(self, "_use"):
            raise InvalidInput("save: call fit first")
        trained, folder = self._use, Path(folder)
        check_unused(folder, advice="", option="folder")
        if not hasattr(self, "fitted_"):
            assert trained.directory is not None
            shutil.copytree(trained.directory, folder, dirs_exist_ok=True)
            return folder
        new_directory(trained.config, folder, Code())
        own = getattr(self, "personalised_", None)
        write_results(folder, self.fitted_, trained.config, self._reports, own)
        return folder

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """The run's folder; of models that are in memory only, one for the time being."""
        if self._use.directory is not None:
            yield self._use.directory
            return
        with TemporaryDirectory() as folder:
            yield self.save(Path(folder) / "run")

    @classmethod
    def load(
        cls: type[Front],
        folder: Path | str,
        *,
        trust: bool = False,
        model: nn.Module | Factory | None = None,
        loss: Loss | None = None,
    ) -> Front:
        """A finished run as a fitted IFCA; model and loss: those it was given from Python.

        trust: run code that the folder names or holds, also where you did not make it on this machine.
        """
        folder = Path(folder)
        given_model = None if model is None else as_factory(model)
        trained = open_trained(folder, trust, given_model, loss, personal=True)
        summary = finished_summary(folder)
        if summary is None:
            raise InvalidInput(f"{folder}: is not finished; 'ifca resume {folder}' goes on")
        names = {f.name for f in fields(Recipe)} | {"engine", "device", "precision", "memory_budget"}
        given: dict[str, Any] = {name: getattr(trained.config, name) for name in names}
        data = trained.config.data
        client = data.client if isinstance(data, GivenData) else None
        front = cls(**given | {"model": model, "loss": loss, "client": client})
        front._use = trained
        front.stopped_ = summary.get("stopped")
        front.step_size_ = summary.get("step_size", trained.config.step_size)
        front.models_, front.train_loss_ = trained.theta, summary["train_loss"]
        rows = [row for row in read_clients(folder) if row["train_samples"] != "0"]
        number = {-1: -1} | {j: place for place, j in enumerate(trained.live)}  # -1: of no cluster yet
        front.clients_ = tuple(row["id"] for row in rows)
        front._say_what_was_seen()
        front.labels_ = np.array([number[int(row["cluster"])] for row in rows])
        places = summary.get("places", trained.live)
        front.history_ = renumbered(read_rounds(folder), places, summary["k"])
        losses = [one["train_loss"] for one in summary["restarts"]]
        front.restarts_ = [float("inf") if loss is None else loss for loss in losses]
        return front
