"""How well do models serve a federation? Clients choose by training data and are scored on test data."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.identity import identity
from ifca.core.types import Data
from ifca.data import Clients, Federation
from ifca.training.unseen import halves
from ifca.use.predict import no_model
from ifca.use.trained import CPU, Trained


def score_federation(trained: Trained, federation: Federation, known: dict[str, int]) -> float:
    """Accuracy over all samples; in regression R2, the share of the targets' variance that is explained.

    Every client is served by the model with the lowest loss on its training data and scored on its test data
    (on its training data where the federation has no test clients). known: the models of the training's
    clients, which decide where every client has its own.
    """
    federation.check_fits("score", trained.input_shape, trained.classes, trained.header["outputs"])
    given = _as_trained(trained, federation)
    if trained.personal:
        served = [_own(known, name) for name in given.train.ids]
    else:
        served = [_chosen(trained, given.train, i) for i in range(len(given.train))]
    if given.test is None:
        parts = [(given.train, i, j) for i, j in enumerate(served)]
    else:
        owners = given.test_owner.tolist()
        parts = [(given.test, i, served[owner]) for i, owner in enumerate(owners) if owner >= 0]
    if not parts:
        raise InvalidInput("score: no test client is one of the training clients")
    return _score(trained, parts)


def score_clients(trained: Trained, federation: Federation, known: dict[str, int]) -> float:
    """The same for the training data of a federation, where some clients' clusters are known.

    A client that is not known chooses by one half of its samples and is scored on the other half
    (training/unseen.py); one with a single sample is left out.
    """
    federation.check_fits("score", trained.input_shape, trained.classes, trained.header["outputs"])
    clients = _as_trained(trained, federation).train
    new = [i for i, name in enumerate(clients.ids) if name not in known]
    if new and trained.personal:
        _own(known, clients.ids[new[0]])
    parts = [(clients, i, known[name]) for i, name in enumerate(clients.ids) if name in known]
    if len(trained.live) == 1:
        parts += [(clients, i, trained.live[0]) for i in new]
    elif chosen := [i for i in new if clients.sizes[i] > 1]:
        choosing, scoring = halves(clients.subset(chosen), trained.config.seed)
        parts += [(scoring, i, _chosen(trained, choosing, i)) for i in range(len(chosen))]
    if not parts:
        raise InvalidInput("score: clients that were not in training need two samples, to choose a model by")
    return _score(trained, parts)


def _score(trained: Trained, parts: list[tuple[Clients, int, int]]) -> float:
    """Accuracy or R2 over all samples of some clients, each under the model of a cluster."""
    said = [_said(trained, clients, i, j) for clients, i, j in parts]
    outputs, y = torch.cat([one for one, _ in said]), torch.cat([two for _, two in said])
    if trained.classes is not None:
        return float((outputs.argmax(1) == y).double().mean())
    outputs, y = outputs.reshape(len(y), -1).double(), y.reshape(len(y), -1).double()
    left, whole = float((outputs - y).square().sum()), float((y - y.mean(0)).square().sum())
    return 1 - left / whole if whole > 0 else float(left == 0)


def _as_trained(trained: Trained, federation: Federation) -> Federation:
    """Features and targets scaled as in training, where they are not yet."""
    x, y = federation.scaling, federation.target_scaling
    if federation.preparation is not None and federation.preparation != trained.preparation:
        raise InvalidInput(
            "score: the federation's tables were prepared in another way than in training; read them with "
            "Columns(preparation=...) of the federation that was trained on"
        )
    for given, known in ((x, trained.scaling), (y, trained.target_scaling)):
        if given is not None and (known is None or given.to_json() != known.to_json()):
            raise InvalidInput("score: the federation is standardised by other numbers than in training")

    def as_seen(clients: Clients) -> Clients:
        inputs = clients.x if trained.scaling is None or x is not None else trained.scaling.apply(clients.x)
        return replace(clients, x=inputs, y=clients.y if y is not None else trained.targets(clients.y))

    test = None if federation.test is None else as_seen(federation.test)
    return replace(federation, train=as_seen(federation.train), test=test)


def _data(trained: Trained, clients: Clients, i: int) -> Data:
    return clients.one(i, CPU, next(iter(trained.theta.values())).dtype)


def _own(known: dict[str, int], name: str) -> int:
    """The number of a client's own model."""
    if name not in known:
        raise InvalidInput(f"score: {no_model(name)}")
    return known[name]


def _chosen(trained: Trained, clients: Clients, i: int) -> int:
    """The number of the cluster whose model has the lowest loss on a client's data."""
    data = _data(trained, clients, i)
    with torch.no_grad():
        means = [
            trained.task.loss(trained.task.output(trained.model(j), data.x), data.y).mean()
            for j in trained.live
        ]
    return trained.live[int(identity(torch.stack(means)))]


def _said(trained: Trained, clients: Clients, i: int, j: int) -> tuple[Tensor, Tensor]:
    data = _data(trained, clients, i)
    with torch.no_grad():
        outputs = trained.task.output(trained.model(j), data.x)
    return trained.in_units(outputs), trained.in_units(data.y)
