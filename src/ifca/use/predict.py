"""Predictions for a client by the model of its cluster, tuned to the client first where that is asked for."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.client import local_update, score
from ifca.core.errors import Diverged, InvalidInput
from ifca.core.random import key_of, shuffled
from ifca.core.types import Data, Params
from ifca.use.assign import assignment
from ifca.use.trained import Trained, open_trained

HELD_OUT = 0.3  # share of a client's samples that tuning never sees
FEWEST = 4  # samples that can be split into two parts that mean something


@dataclass(frozen=True)
class Tuning:
    """Local fine-tuning of the chosen model; None: as in the run's own rounds."""

    steps: int | None = None
    step_size: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Predictions:
    """What the chosen model says of every sample of a client."""

    cluster: int
    outputs: NDArray[Any]  # [n, classes or targets]
    classes: int | None
    labels: NDArray[Any] | None
    held_out: NDArray[np.bool_] | None = None  # where tuned: the samples that tuning never saw
    report: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # of the choice of the cluster
    model: Params = field(default_factory=dict)  # the one that said it

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
        names += ["held_out"] if self.held_out is not None else []
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
            start += [int(self.held_out[i])] if self.held_out is not None else []
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
    data = as_data(trained, x, y)
    held_out = None if tuning is None else _split(where, len(x), tuning.seed, key)
    seen = data if held_out is None else _rows(data, ~held_out)
    warnings: tuple[str, ...] = ()
    if cluster is None:
        found = assignment(trained, seen, where)
        cluster, warnings = found["cluster"], tuple(found["warnings"])
    model = trained.model(cluster)
    report: dict[str, Any] = {}
    if held_out is not None and tuning is not None:
        rest = _rows(data, held_out)
        tuned = _tuned(trained, model, seen, tuning)
        before, after = (_quality(trained, theta, rest) for theta in (model, tuned))
        report = {"tuned_on": len(seen.x), "held_out": len(rest.x), "before": before, "after": after}
        model = tuned
    elif y is not None:
        report = _quality(trained, model, data)
    table = outputs_of(trained, model, data)
    return Predictions(cluster, table, trained.classes, y, held_out, report, warnings, model)


def outputs_of(trained: Trained, model: Params, data: Data) -> NDArray[Any]:
    """[n, classes or targets]; a regression's module may give [n]."""
    with torch.no_grad():
        outputs = trained.task.output(model, data.x)
    table: NDArray[Any] = outputs.reshape(len(outputs), -1).numpy()
    return table


def as_data(trained: Trained, x: NDArray[Any], y: NDArray[Any] | None) -> Data:
    """Samples as the models saw them in training; without labels they are zero."""
    inputs = trained.inputs(torch.from_numpy(np.ascontiguousarray(x)))
    labels = torch.zeros(len(x)) if y is None else torch.from_numpy(np.ascontiguousarray(y))
    labels = labels.to(inputs.dtype) if labels.is_floating_point() else labels.long()
    return Data(inputs, labels, torch.ones(len(x), dtype=inputs.dtype))


def _rows(data: Data, chosen: NDArray[np.bool_]) -> Data:
    return Data(*(part[torch.from_numpy(chosen)] for part in data))


def _split(where: str, n: int, seed: int, key: int) -> NDArray[np.bool_]:
    """Which samples tuning never sees."""
    if n < FEWEST:
        raise InvalidInput(f"{where}: has {n} samples; to personalise, at least {FEWEST} are needed")
    order = shuffled(seed, "personalise", np.array([n]), np.array([key], np.uint64))[0]
    held_out = np.zeros(n, bool)
    held_out[order[: max(1, round(HELD_OUT * n))]] = True
    return held_out


def _tuned(trained: Trained, model: Params, data: Data, tuning: Tuning) -> Params:
    """LocalUpdate on the client's own samples, all of them in every step."""
    steps = trained.config.local_steps if tuning.steps is None else tuning.steps
    size = trained.config.step_size if tuning.step_size is None else tuning.step_size
    if steps < 1 or not (math.isfinite(size) and size > 0):
        raise InvalidInput(f"personalise: steps and step size must be positive, got {steps} and {size}")
    tuned = local_update(trained.task, model, size, [data] * steps)
    if not all(bool(torch.isfinite(value).all()) for value in tuned.values()):
        raise Diverged(f"personalising diverged; try a smaller --step-size than {size}")
    return tuned


def _quality(trained: Trained, model: Params, data: Data) -> dict[str, Any]:
    with torch.no_grad():
        loss, correct = score(trained.task, model, data)
    accuracy: Tensor = correct / len(data.x)
    return {"loss": float(loss), "accuracy": None if trained.classes is None else float(accuracy)}
