"""What can be asked of trained models: assign, predict, score, personalise."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ifca.core.client import mean_loss
from ifca.core.errors import InvalidInput
from ifca.core.types import Data
from ifca.data import Client, Federation
from ifca.data.assemble import as_array
from ifca.use.answers import Assignment, Personal
from ifca.use.assign import assignment
from ifca.use.personal import Tuning
from ifca.use.predict import Predictions, as_data, outputs_of, predicted
from ifca.use.scoring import score_federation
from ifca.use.trained import Trained


class TrainedModels:
    """The part of IFCA that is the same after fit and after load."""

    _use: Trained

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

    def predict(self, x: ArrayLike, cluster: int) -> NDArray[Any]:
        """Predictions of one cluster's model: classes (words where labels were), or values in regression."""
        return self._said("predict", x, cluster).labels_or_values()

    def predict_proba(self, x: ArrayLike, cluster: int) -> NDArray[Any]:
        """Probabilities of the classes by one cluster's model: [n, classes]."""
        if self._trained("predict_proba").classes is None:
            raise InvalidInput("predict_proba: this is a regression, which has no classes")
        return self._said("predict_proba", x, cluster).probabilities

    def score(self, federation: Federation) -> float:
        """Accuracy on a federation's test data, in regression R2; clients choose by their training data.

        A federation without test clients is scored on its training data.
        """
        if not isinstance(federation, Federation):
            raise InvalidInput(f"score takes a Federation, got {type(federation).__name__}")
        return score_federation(self._trained("score"), federation)

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

    def _said(self, verb: str, x: ArrayLike, cluster: int) -> Predictions:
        trained = self._trained(verb)
        data = self._data(verb, x, None)
        if not isinstance(cluster, (int, np.integer)):
            raise InvalidInput(f"{verb}: cluster must be a whole number, got {cluster!r}")
        model = trained.model(int(cluster))
        outputs = outputs_of(trained, model, data)
        return Predictions(int(cluster), outputs, trained.classes, None, class_names=trained.class_names)

    def _data(self, verb: str, x: ArrayLike, y: ArrayLike | None) -> Data:
        """A client's samples as the models saw them in training."""
        trained = self._trained(verb)
        given = as_array("x", verb, x)
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
            raise InvalidInput(f"{verb}: call fit first")
        if self._use.header["personal"]:
            raise InvalidInput(f"{verb}: local models belong to one client each; a new client has none")
        return self._use
