"""What scikit-learn's tools ask of an estimator: its kind, its classes and features, fit_predict."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data import Federation
from ifca.data.class_names import labels_of_classes
from ifca.use.grouped import Groups, rows_of
from ifca.use.personal_front import PersonalFront


class SklearnFront(PersonalFront):
    """The part of IFCA that makes it fit for GridSearchCV, cross_val_score and their scorers."""

    def fit(self, X: Any, y: Any = None, groups: Groups = None) -> Any:
        """Train: IFCA's own."""
        raise NotImplementedError

    def fit_predict(self, X: Any, y: Any = None, groups: Groups = None) -> NDArray[Any]:
        """Train on rows, then predict the same rows: fit(X, y, groups).predict(X, groups=groups)."""
        if isinstance(X, Federation):
            raise InvalidInput("fit_predict takes X, y and groups; of a Federation, fit gives labels_")
        self.fit(X, y, groups)
        rows = rows_of("fit_predict", X, y, self.client if groups is None else groups, self._use)
        return self.predict(rows.x, groups=np.array(rows.names)[rows.owner])

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks: a classifier or a regressor, once that is known."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.estimator_type = self._estimator_type
        return tags

    @property
    def _estimator_type(self) -> str | None:
        if not hasattr(self, "_use"):
            return None
        return "regressor" if self._use.classes is None else "classifier"

    def _say_what_was_seen(self) -> None:
        """scikit-learn's names for what the data were like."""
        trained = self._use
        self.n_features_in_ = int(np.prod(trained.input_shape))
        for name in ("feature_names_in_", "classes_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if trained.feature_names is not None:
            self.feature_names_in_ = np.array(trained.feature_names, dtype=object)
        if trained.classes is not None:
            names = trained.class_names
            self.classes_ = np.arange(trained.classes) if names is None else labels_of_classes(names)
