"""FedDrift's recipe, written down plainly as a rival: models are made on drift, and merged where they agree.

At every time step: (1) each client scores all models that are not isolated on its new data; (2) where the
best accuracy fell by more than delta since the last step it gets a new model of its own, isolated for one
step, else it joins the best; (3) models i and j are as far apart as the larger fall in accuracy when one is
used on the other's data, and are merged by complete linkage up to delta; (4) every model is trained by
federated averaging on all data that were ever assigned to it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifca import IFCA
from ifca.core.types import Params
from ifca.data import Client, Federation

Samples = tuple[Any, Any]  # x, y as they are given


class FedDrift:
    """The server's memory: models, whose data each has, what clients reached in the last step."""

    def __init__(self, delta: float, settings: dict[str, Any]) -> None:
        self.delta, self.settings = delta, settings
        self.models: dict[int, Params] = {}
        self.data: dict[int, dict[str, list[Samples]]] = {}  # model -> client -> its samples, step by step
        self.reached: dict[str, float] = {}
        self.front: IFCA | None = None  # of the first training: it knows the model and its scaling
        self.count = 0

    def step(self, federation: Federation) -> tuple[list[int], float]:
        """One time step: the model of each client, and the accuracy on the test samples."""
        train = federation.train
        names, own = train.ids, [train.arrays(i) for i in range(len(train))]
        if self.front is None:
            chosen, isolated = [self._new()] * len(names), set[int]()
        else:
            self._merge()
            chosen, isolated = self._chosen(names, own)
        for j, name, samples in zip(chosen, names, own, strict=True):
            self.data[j].setdefault(name, []).append(samples)
        for j in self.data:
            if j in chosen:
                self._train(j)
        self.reached = {n: self._right(j, *s) for n, j, s in zip(names, chosen, own, strict=True)}
        test = federation.test
        assert test is not None
        right = [self._right(j, *test.arrays(i)) for i, j in enumerate(chosen)]
        self.isolated = isolated
        return chosen, float(np.average(right, weights=test.sizes))

    def _new(self) -> int:
        self.count += 1
        self.data[self.count - 1] = {}
        return self.count - 1

    def _chosen(self, names: tuple[str, ...], own: list[Samples]) -> tuple[list[int], set[int]]:
        """Lines (1) and (2)."""
        chosen, isolated, known = [], set[int](), sorted(self.models)
        for name, samples in zip(names, own, strict=True):
            scores = {j: self._right(j, *samples) for j in known}
            best = max(known, key=lambda j: scores[j])
            if scores[best] < self.reached[name] - self.delta:
                best = self._new()
                isolated.add(best)
            chosen.append(best)
        return chosen, isolated

    def _merge(self) -> None:
        """Line (3): complete linkage, the closest pair first."""
        while len(self.models) > 1:
            pairs = [(self._apart(i, j), i, j) for i in self.models for j in self.models if i < j]
            distance, i, j = min(pairs)
            if distance > self.delta:
                return
            weight = [sum(len(part) for part in self.data[a].values()) for a in (i, j)]
            share = weight[0] / max(1, sum(weight))
            mine, other = self.models[i], self.models.pop(j)
            self.models[i] = {name: share * mine[name] + (1 - share) * other[name] for name in mine}
            for name, parts in self.data.pop(j).items():
                self.data[i].setdefault(name, []).extend(parts)

    def _apart(self, i: int, j: int) -> float:
        falls = [self._of_data(a, a) - self._of_data(b, a) for a, b in ((i, j), (j, i))]
        return max(*falls, 0.0)

    def _of_data(self, model: int, data: int) -> float:
        """Accuracy of a model on the data of another; of each client the last samples."""
        parts = [own[-1] for own in self.data[data].values()]
        right = [self._right(model, *part) for part in parts]
        return float(np.average(right, weights=[len(y) for _, y in parts])) if parts else 0.0

    def _train(self, j: int) -> None:
        """Line (4), from the model as it is; a new one begins as the first did."""
        clients = [
            Client(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), id=name)
            for name, parts in self.data[j].items()
        ]
        classes = None if self.front is None else self.front._use.classes
        federation = Federation.from_clients(clients, classes or self.settings["classes"])
        given = {name: value for name, value in self.settings.items() if name != "classes"}
        if self.front is not None and (scaling := self.front._use.scaling) is not None:
            federation = federation.with_features_as(scaling)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            front = IFCA(algorithm="global", warm_start=self.models.get(j), **given).fit(federation)
        self.front = self.front or front
        self.models[j] = front.models_

    def _right(self, j: int, x: Any, y: Any) -> float:
        """Accuracy of a model on samples as they are given."""
        assert self.front is not None
        trained = self.front._use
        model = {name: value[0] for name, value in self.models[j].items()}
        with torch.no_grad():
            outputs: Tensor = trained.task.output(model, trained.inputs(torch.as_tensor(x)))
        return float((outputs.argmax(-1).numpy() == np.asarray(y)).mean())
