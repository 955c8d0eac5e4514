"""Predictions for a client by the model of its cluster, or by one of its own where that is asked for."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from ifca.data.class_names import labels_of_classes
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import kind_of
from ifca.training.quality import quality_of
from ifca.use.assign import assignment
from ifca.use.opened_run import open_trained
from ifca.use.personal import PersonalModel, Tuning, personal_model
from ifca.use.samples import Samples, samples_of
from ifca.use.trained import Trained


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
    class_names: tuple[str, ...] | None = None  # what the classes are called
    client: str = ""
    rows: NDArray[Any] | None = None  # [n] places of the samples in their file; None: 0, 1, ...
    labelled: NDArray[np.bool_] | None = None  # [n] which samples have a label; None: all
    own: bool = False  # the model is the client's own; cluster is its number

    @property
    def probabilities(self) -> NDArray[Any]:
        """Of each class: the softmax of the outputs."""
        return torch.from_numpy(self.outputs).double().softmax(1).numpy()

    def labels_or_values(self) -> NDArray[Any]:
        """Classes [n] as labels were given, words or numbers; in regression values, [n] or [n, targets]."""
        if self.classes is not None:
            return as_labels(self.outputs.argmax(1), self.class_names)
        return self.outputs[:, 0] if self.outputs.shape[1] == 1 else self.outputs

    def table(self) -> str:
        """A row per sample, as CSV."""
        return table_of([self])

    def lines(self) -> Iterator[list[Any]]:
        """The cells of each sample: its row, its label where there are labels, what is predicted."""
        said = self.labels_or_values()
        if self.classes is None:
            values = self.outputs.tolist()
        else:
            shares = self.probabilities
            values = [[c, *[f"{p:.6g}" for p in row]] for c, row in zip(said.tolist(), shares, strict=True)]
        rows = range(len(values)) if self.rows is None else self.rows.tolist()
        labels = self.labels
        if labels is not None and self.classes is not None:
            labels = as_labels(labels, self.class_names)
        for i, (row, value) in enumerate(zip(rows, values, strict=True)):
            start: list[Any] = [row]
            if labels is not None:
                label = labels[i].tolist() if self.labelled is None or self.labelled[i] else ""
                start.append(" ".join(map(str, label)) if isinstance(label, list) else label)
            yield [*start, *value]


def table_of(clients: Sequence[Predictions]) -> str:
    """A row per sample of each client, as CSV; which client it is stands first where there are several."""
    first, several = clients[0], len(clients) > 1
    labelled = any(one.labels is not None for one in clients)
    width = first.outputs.shape[1]
    names = [*(["client"] if several else []), "row", *(["label"] if labelled else [])]
    if first.classes is None:
        names += ["prediction"] if width == 1 else [f"prediction_{c}" for c in range(width)]
    else:
        names += ["prediction", *[f"probability_{c}" for c in first.class_names or range(width)]]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for one in clients:
        for row, *cells in one.lines():
            blank = [""] if labelled and one.labels is None else []
            writer.writerow([*([one.client] if several else []), row, *blank, *cells])
    return out.getvalue()


def as_labels(numbers: NDArray[Any], names: tuple[str, ...] | None) -> NDArray[Any]:
    """Class numbers as the labels that they stand for: words, or other numbers."""
    if names is None:
        return np.asarray(numbers)
    labels: NDArray[Any] = labels_of_classes(names)[numbers]
    return labels


def predict(
    directory: Path,
    path: Path,
    cluster: int | None = None,
    tuning: Tuning | None = None,
    trust: bool = False,
) -> Predictions:
    """Predictions for the one client of a file; as of predict_clients."""
    found = predict_clients(directory, path, cluster, tuning, trust)
    if len(found) != 1:
        raise InvalidInput(f"{path}: holds rows of {len(found)} clients; predict_clients takes several")
    return found[0]


def predict_clients(
    directory: Path,
    path: Path,
    cluster: int | None = None,
    tuning: Tuning | None = None,
    trust: bool = False,
    client: str | None = None,
) -> list[Predictions]:
    """Choose each client's model (or take the given cluster), and let it predict.

    A client with labels is served by the model that fits them best, one without by the model that the run
    gave to the client of this name; of a personal method every client by its own. trust: as of open_trained.
    client: as of samples_of.
    """
    trained = open_trained(directory, trust, personal=True)
    if trained.personal and (cluster is not None or tuning is not None):
        raise InvalidInput(
            f"{directory}: every client of this run has a model of its own, so there is nothing to choose; "
            "leave out --cluster and --personalise"
        )
    clients = samples_of(trained, path, client)
    if trained.personal and (others := [one for one in clients if one.id not in trained.known]):
        raise InvalidInput(f"{others[0].where}: {no_model(others[0].id)}")
    strangers = [one for one in clients if one.y is None and cluster is None and one.id not in trained.known]
    if strangers:
        what = "no labels to find its cluster by; give --cluster"
        if client is None and kind_of(path) in TABLES:
            what += ", or --client where a column says whose a row is"
        more = f" (nor are {len(strangers) - 1} more)" if len(strangers) > 1 else ""
        one = strangers[0]
        raise InvalidInput(f"{one.where}: {one.id} is no client of this run{more}, and has {what}")
    return [_of_client(trained, one, cluster, tuning) for one in clients]


def _of_client(trained: Trained, one: Samples, cluster: int | None, tuning: Tuning | None) -> Predictions:
    if cluster is None and (one.y is None or trained.personal):
        cluster = trained.known[one.id]
    if one.y is None or one.labelled.all():
        made = predicted(trained, one.x, one.y, one.where, cluster, tuning, key_of(one.id))
    else:  # the labelled rows choose, all are predicted
        some = one.labelled
        made = predicted(trained, one.x[some], one.y[some], one.where, cluster, tuning, key_of(one.id))
        data = as_data(trained, one.x, None)
        outputs = (
            flat(trained.in_units(made.personal.outputs(data.x)))
            if made.personal is not None
            else outputs_of(trained, trained.model(made.cluster), data)
        )
        check_finite(outputs, one.where)
        made = replace(made, outputs=outputs, labels=one.y, labelled=some)
    told = (*one.warnings, *made.warnings)
    return replace(made, client=one.id, rows=one.rows, warnings=told, own=trained.personal)


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
    model, personal = trained.model(cluster), None
    if tuning is not None:
        personal = personal_model(trained, model, data, where, tuning, key)
        outputs, report = flat(trained.in_units(personal.outputs(data.x))), personal.report
    else:
        outputs = outputs_of(trained, model, data)
        report = {} if y is None else {**_quality(trained, model, data), **_metrics(trained, outputs, y)}
    check_finite(outputs, where)
    names = trained.class_names
    return Predictions(cluster, outputs, trained.classes, y, report, warnings, personal, names)


def check_finite(outputs: NDArray[Any], where: str) -> None:
    """Refuse samples for which a model has no answer: numbers too large for it, most often."""
    bad = np.flatnonzero(~np.isfinite(outputs).all(1))
    if len(bad):
        more = f" (nor for {len(bad) - 1} more)" if len(bad) > 1 else ""
        told = f"the model gives no finite number for sample {bad[0]}{more}"
        raise InvalidInput(f"{where}: {told}; is it scaled as in training?")


def no_model(name: str) -> str:
    """Why a personal method has no answer for a client."""
    return (
        f"{name} is no client of this run, in which every client has a model of its own; a new one has none"
    )


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
    x = np.require(x, requirements=("C", "W"))  # torch warns of arrays that it cannot write to, as of pandas
    inputs = trained.inputs(torch.from_numpy(x))
    labels = (
        torch.zeros(len(x))
        if y is None
        else trained.targets(torch.from_numpy(np.require(y, requirements=("C", "W"))))
    )
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
