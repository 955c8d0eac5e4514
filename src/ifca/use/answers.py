"""What a fitted IFCA answers: a cluster with its evidence, a model that was tuned to a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike, NDArray

from ifca.core.types import Data
from ifca.use.predict import Predictions, flat
from ifca.use.trained import Trained


class Assignment(int):
    """The number of a cluster, and how sure it is."""

    losses: tuple[float | None, ...]  # under each model
    second: int | None  # the next best cluster
    margin: float | None  # how much more the client loses under it, on average
    margin_in_errors: float | None  # the same in standard errors
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, found: dict[str, Any]) -> Assignment:
        """From what use/assign.py found."""
        made = cls(found["cluster"])
        made.losses, made.warnings = tuple(found["losses"]), tuple(found["warnings"])
        made.second, made.margin = found["second"], found["margin"]
        made.margin_in_errors = found["margin_in_errors"]
        return made


class Personal:
    """What a client chose to be served by: the model of its cluster, or one of its own."""

    def __init__(self, data: Callable[[ArrayLike], Data], trained: Trained, made: Predictions) -> None:
        """data: samples as they are given -> as the models saw them in training."""
        self._data, self._trained, self._made = data, trained, made
        self.cluster, self.warnings = made.cluster, made.warnings
        self.report: dict[str, Any] = made.report
        """samples, what was chosen, and held-out loss and accuracy before and after."""

    def __repr__(self) -> str:
        """The cluster, what was chosen, and the loss on held-out samples before and after."""
        before, after = (self.report[when]["loss"] for when in ("before", "after"))
        chosen = self.report["chosen"]
        return f"Personal(cluster={self.cluster}, {chosen}, held-out loss {before:.4g} -> {after:.4g})"

    @property
    def helped(self) -> bool:
        """Whether the loss on held-out samples is lower than before."""
        return bool(self.report["after"]["loss"] < self.report["before"]["loss"])

    def predict(self, x: ArrayLike) -> NDArray[Any]:
        """Classes (words where labels were), or values in regression."""
        return self._said(x).labels_or_values()

    def predict_proba(self, x: ArrayLike) -> NDArray[Any]:
        """Probabilities of the classes: [n, classes]."""
        return self._said(x).probabilities

    def _said(self, x: ArrayLike) -> Predictions:
        assert self._made.personal is not None
        outputs = flat(self._trained.in_units(self._made.personal.outputs(self._data(x).x)))
        names = self._trained.class_names
        return Predictions(self.cluster, outputs, self._trained.classes, None, class_names=names)
