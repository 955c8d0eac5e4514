"""Predictions for a client by the model of its cluster, or by one of its own where that is asked for."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.client import score
from ifca.core.errors import InvalidInput
from ifca.core.random import key_of
from ifca.core.types import Data, Params
from ifca.training.quality import quality_of
from ifca.use.assign import assignment
from ifca.use.personal import PersonalModel, Tuning, personal_model
from ifca.use.trained import Trained, open_trained


@dataclass(frozen=True)
class Predictions:
    """What the chosen model says of every sample of a client."""

    cluster: int
    outputs: NDArray[Any]  # [n, classes or targets]
    classes: int | None
    labels: NDArray[Any] | None
    report: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # of the choice of the cluster
    personal: PersonalModel | None = None  # where it said it

    @property
    def probabilities(self) -> NDArray[Any]:
        """Of each class: the softmax of the outputs."""
        return torch.from_numpy(self.outputs).double().softmax(1).numpy()

    def labels_or_values(self) -> NDArray[Any]:
        """Class numbers [n]; in regression values, [n] or [n, targets]."""
        if self.classes is not None:
            return np.asarray(self.outputs.argmax(1))
        return self.outputs[:, 0] if self.outputs.shape[1] == 1 else self.outputs

    def table(self) -> str:
        """A row per sample, as CSV."""
        names = ["row", *(["label"] if self.labels is not None else [])]
        width = self.outputs.shape[1]
        if self.classes is None:
            names += ["prediction"] if width == 1 else [f"prediction_{c}" for c in range(width)]
            values = self.outputs.tolist()
        else:
            names += ["prediction", *[f"probability_{c}" for c in range(width)]]
            shares = self.probabilities
            values = [[int(row.argmax()), *[f"{p:.6g}" for p in row]] for row in shares]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        for i, row in enumerate(values):
            start: list[Any] = [i]
            if self.labels is not None:
                label = self.labels[i].tolist()
                start.append(" ".join(map(str, label)) if isinstance(label, list) else label)
            writer.writerow([*start, *row])
        return out.getvalue()


def predict(
    directory: Path,
    path: Path,
    cluster: int | None = None,
    tuning: Tuning | None = None,
    trust: bool = False,
) -> Predictions:
    """Choose the client's model by its labels (or take the given cluster), and let it predict.

    trust: as of open_trained.
    """
    trained = open_trained(directory, trust)
    x, y = trained.samples(path)
    return predicted(trained, x, y, str(path), cluster, tuning, key_of(path.stem))


def predicted(
    trained: Trained,
    x: NDArray[Any],
    y: NDArray[Any] | None,
    where: str,
    cluster: int | None = None,
    tuning: Tuning | None = None,
    key: int = 0,
) -> Predictions:
    """The same for samples in memory. where: what complaints name; key: the client's, for its split."""
    if y is None and cluster is None:
        raise InvalidInput(f"{where}: has no labels to find its cluster by; give --cluster")
    if y is None and tuning is not None:
        raise InvalidInput(f"{where}: has no labels to personalise by")
    data, warnings = as_data(trained, x, y), ()
    if cluster is None:
        found = assignment(trained, data, where)
        cluster, warnings = found["cluster"], tuple(found["warnings"])
    model = trained.model(cluster)
    if tuning is not None:
        personal = personal_model(trained, model, data, where, tuning, key)
        table = flat(trained.in_units(personal.outputs(data.x)))
        return Predictions(cluster, table, trained.classes, y, personal.report, warnings, personal)
    outputs = outputs_of(trained, model, data)
    report = {} if y is None else {**_quality(trained, model, data), **_metrics(trained, outputs, y)}
    return Predictions(cluster, outputs, trained.classes, y, report, warnings)


def outputs_of(trained: Trained, model: Params, data: Data) -> NDArray[Any]:
    """[n, classes or targets]; a regression's module may give [n]."""
    with torch.no_grad():
        return flat(trained.in_units(trained.task.output(model, data.x)))


def flat(outputs: Tensor) -> NDArray[Any]:
    """[n, ...] -> [n, classes or targets]."""
    table: NDArray[Any] = outputs.reshape(len(outputs), -1).numpy()
    return table


def as_data(trained: Trained, x: NDArray[Any], y: NDArray[Any] | None) -> Data:
    """Samples as the models saw them in training; without labels they are zero."""
    inputs = trained.inputs(torch.from_numpy(np.ascontiguousarray(x)))
    labels = torch.zeros(len(x)) if y is None else trained.targets(torch.from_numpy(np.ascontiguousarray(y)))
    labels = labels.to(inputs.dtype) if labels.is_floating_point() else labels.long()
    return Data(inputs, labels, torch.ones(len(x), dtype=inputs.dtype))


def _metrics(trained: Trained, outputs: NDArray[Any], y: NDArray[Any]) -> dict[str, Any]:
    """Beside loss and accuracy, as of the run's own test data."""
    return {"quality": quality_of(outputs, y, trained.classes)}


def _quality(trained: Trained, model: Params, data: Data) -> dict[str, Any]:
    with torch.no_grad():
        loss, correct = score(trained.task, model, data)
    accuracy: Tensor = correct / len(data.x)
    return {"loss": float(loss), "accuracy": None if trained.classes is None else float(accuracy)}
