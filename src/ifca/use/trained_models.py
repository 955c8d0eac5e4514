"""What can be asked of trained models: assign, predict, score, personalise."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ifca.core.client import mean_loss
from ifca.core.errors import InvalidInput, NotFitted
from ifca.core.types import Data
from ifca.data import Client, Federation
from ifca.use.answers import Assignment, Personal
from ifca.use.assign import assignment
from ifca.use.grouped import Groups, matrix_of, rows_of
from ifca.use.personal import Tuning
from ifca.use.predict import Predictions, as_data, check_finite, no_model, outputs_of, predicted
from ifca.use.scoring import score_clients, score_federation
from ifca.use.trained import Trained

OF_OWN = ("predict", "predict_proba", "score")  # what a client's own model is asked


class TrainedModels:
    """The part of IFCA that is the same after fit and after load."""

    _use: Trained
    client: str | int | None
    clients_: tuple[str, ...]
    labels_: NDArray[Any]

    def losses(self, x: ArrayLike, y: ArrayLike) -> NDArray[Any]:
        """Mean loss of each model on a client's data: [models]."""
        data = self._data("losses", x, y)
        trained = self._trained("losses")
        with torch.no_grad():
            each = [mean_loss(trained.task, trained.model(j), data) for j in trained.live]
        return torch.stack(each).numpy()

    def assign(self, x: ArrayLike, y: ArrayLike) -> Assignment:
        """The cluster of a client, seen or never seen: the model with the lowest loss on its data.

        A number, with losses, margin to the second best and warnings beside it.
        """
        data = self._data("assign", x, y)
        return Assignment.of(assignment(self._trained("assign"), data, "this client"))

    def predict(self, X: Any, cluster: int | None = None, *, groups: Groups = None) -> NDArray[Any]:
        """Classes [n] (words where labels were words), or values in regression.

        groups: whose each row is; every client of the training is served by the model of its cluster.
        cluster: the cluster whose model serves all rows, for clients that were not in training.
        """
        return self._said("predict", X, cluster, groups).labels_or_values()

    def predict_proba(self, X: Any, cluster: int | None = None, *, groups: Groups = None) -> NDArray[Any]:
        """Probabilities of the classes: [n, classes]; groups and cluster as of predict."""
        if self._trained("predict_proba").classes is None:
            raise InvalidInput("predict_proba: this is a regression, which has no classes")
        return self._said("predict_proba", X, cluster, groups).probabilities

    def score(self, X: Any, y: Any = None, groups: Groups = None, sample_weight: None = None) -> float:
        """Accuracy over all samples; in regression R2.

        X, y, groups: rows and whose they are. A client of the training is served by the model of its
        cluster. One that was not in training chooses its model by one half of its rows, and is scored on
        the other half. X may also be a federation: clients choose by its training data and are scored on
        its test data (where it has none, on its training data). sample_weight: a Pipeline of scikit-learn
        names it; rows cannot be weighted.
        """
        trained = self._trained("score")
        if sample_weight is not None:
            raise InvalidInput("score: every row counts alike; sample_weight must be None")
        if isinstance(X, Federation):
            return score_federation(trained, X, self._known())
        rows = rows_of("score", X, y, self.client if groups is None else groups, trained)
        clients = Federation.from_clients(rows.clients(), trained.classes)
        return score_clients(trained, clients, self._known())

    def personalise(
        self,
        x: ArrayLike,
        y: ArrayLike,
        *,
        cluster: int | None = None,
        steps: int | None = None,
        step_size: float | None = None,
    ) -> Personal:
        """What serves a client best, as its held-out samples say: its cluster's model, or one of its own.

        steps: try only so many steps of tuning; step_size: of tuning, None: the one of training.
        """
        trained, data = self._trained("personalise"), self._data("personalise", x, y)
        given, labels = np.asarray(x), trained.in_units(data.y).numpy()
        made = predicted(trained, given, labels, "this client", cluster, Tuning(steps, step_size))
        return Personal(partial(self._data, "predict", y=None), trained, made)

    def _known(self) -> dict[str, int]:
        """The cluster of each client of the training; where there is one model, it serves everybody."""
        live = self._use.live
        return {name: live[j] for name, j in zip(self.clients_, self.labels_.tolist(), strict=True) if j >= 0}

    def _said(self, verb: str, X: Any, cluster: int | None, groups: Groups = None) -> Predictions:
        trained = self._trained(verb)
        groups = self.client if groups is None and cluster is None else groups
        if trained.personal and (groups is None or cluster is not None):
            raise InvalidInput(
                f"{verb}: every client has a model of its own; say whose each row is (groups=)"
            )
        if groups is not None and cluster is None:
            return self._said_by_client(verb, X, groups)
        if cluster is None and len(trained.live) == 1:
            cluster = trained.live[0]
        if cluster is None:
            raise InvalidInput(f"{verb}: say whose each row is (groups=), or which model to use (cluster=)")
        if groups is not None:
            raise InvalidInput(f"{verb}: give groups or cluster, not both")
        if not isinstance(cluster, (int, np.integer)):
            raise InvalidInput(f"{verb}: cluster must be a whole number, got {cluster!r}")
        data = self._data(verb, X, None)
        model = trained.model(int(cluster))
        outputs = outputs_of(trained, model, data)
        check_finite(outputs, verb)
        return Predictions(int(cluster), outputs, trained.classes, None, class_names=trained.class_names)

    def _said_by_client(self, verb: str, X: Any, groups: Groups) -> Predictions:
        """Every row by the model of its client's cluster."""
        trained, known = self._trained(verb), self._known()
        rows = rows_of(verb, X, None, groups, trained, labelled=False)
        data, alone = self._data(verb, rows.x, None), len(trained.live) == 1
        new = [name for name in rows.names if name not in known]
        if new and trained.personal:
            raise InvalidInput(f"{verb}: {no_model(new[0])}")
        if new and not alone:
            raise InvalidInput(
                f"{verb}: client {new[0]} was not in training, and rows without labels do not tell its "
                f"cluster; assign(x, y) finds it by some rows with labels, then {verb}(x, cluster)"
            )
        chosen = np.array([trained.live[0] if alone else known[name] for name in rows.names])[rows.owner]
        outputs: NDArray[Any] | None = None
        for j in np.unique(chosen).tolist():
            here = torch.from_numpy(np.flatnonzero(chosen == j))
            part = outputs_of(trained, trained.model(j), Data(*(one[here] for one in data)))
            outputs = np.empty((len(chosen), part.shape[1]), part.dtype) if outputs is None else outputs
            outputs[here.numpy()] = part
        assert outputs is not None
        check_finite(outputs, verb)
        # -1: of several clusters
        return Predictions(-1, outputs, trained.classes, None, class_names=trained.class_names)

    def _data(self, verb: str, x: ArrayLike, y: ArrayLike | None) -> Data:
        """A client's samples as the models saw them in training."""
        trained = self._trained(verb)
        given = matrix_of(verb, x, trained)[0]
        if not len(given):
            raise InvalidInput(f"{verb}: x has no samples")
        if given.shape[1:] != trained.input_shape:
            shape = tuple(given.shape[1:])
            raise InvalidInput(f"x: samples have shape {shape}, training had {trained.input_shape}")
        if y is None:
            return as_data(trained, given, None)
        labels = trained.class_numbers(verb, y)
        client = Federation.from_clients([Client(given, labels)], trained.classes)
        client.check_fits("new client", trained.input_shape, trained.classes, trained.header["outputs"])
        return as_data(trained, *client.train.arrays(0))

    def _trained(self, verb: str) -> Trained:
        """The models as they are used, after fit or load."""
        if not hasattr(self, "_use"):
            raise NotFitted(f"{verb}: call fit first")
        if self._use.personal and verb not in OF_OWN:
            raise InvalidInput(f"{verb}: every client has a model of its own; a new client has none")
        return self._use
