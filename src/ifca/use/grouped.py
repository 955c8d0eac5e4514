"""Rows of many clients in scikit-learn's manner: X, y, and groups, which says whose each row is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data import Client, Federation
from ifca.data.assemble import as_array
from ifca.data.preparation import Preparation
from ifca.use.frames import features_of_frame, is_frame, is_messy, prepared_frame
from ifca.use.trained import Trained

Groups = Any
"""Whose each row is: [n], or the column of X that says so; with a list of arrays: a name for each of them."""


@dataclass(frozen=True)
class Rows:
    """Checked rows of some clients."""

    x: NDArray[Any]  # [n, ...]
    y: NDArray[Any] | None  # [n] or [n, targets]
    names: tuple[str, ...]  # of the clients, in the order in which they appear
    owner: NDArray[np.int64]  # [n] the place in names
    features: tuple[str, ...] | None  # names of the columns, where X has any
    preparation: Preparation | None = None  # of labels that are other numbers than 0, 1, ...

    def clients(self) -> Iterator[Client]:
        """One after the other."""
        assert self.y is not None
        for i, name in enumerate(self.names):
            own = self.owner == i
            parts = self.x[own], self.y[own]
            yield Client(*parts, id=name, features=self.features, preparation=self.preparation)


def federation_of(X: Any, y: Any, groups: Groups) -> Federation:
    """The federation to train on: a client for each value of groups."""
    table = _parts("fit", X, y, groups)
    if is_messy(table.X, table.y):
        names, owner = _owners("fit", table.groups, len(table.X))
        return Federation.from_clients(prepared_frame(table.X, table.y, np.array(names, dtype=object)[owner]))
    return Federation.from_clients(_numbered(rows_of("fit", X, y, groups)).clients())


def _numbered(rows: Rows) -> Rows:
    """Rows with class numbers from 0; where labels begin elsewhere (-1 and 1), names are kept for them."""
    y = rows.y
    if rows.x.ndim != 2 or y is None or y.ndim != 1 or y.dtype.kind not in "iu" or y.min() == 0:
        return rows
    labels, numbers = np.unique(y, return_inverse=True)
    names = rows.features or [f"x{i}" for i in range(rows.x.shape[1])]
    made = replace(Preparation.of_numbers(names, ("y",), False), class_names=tuple(map(str, labels.tolist())))
    return replace(rows, y=numbers.astype(np.int64), preparation=made)


def training_data(X: Any, y: Any, groups: Groups, client: str | int | None) -> Federation:
    """What fit was given: a federation alone, or rows. client: the column that says whose a row is."""
    if not isinstance(X, Federation):
        return federation_of(X, y, client if groups is None else groups)
    if y is not None or groups is not None:
        raise InvalidInput("fit: a Federation has its labels and clients; give it alone")
    return X


def rows_of(
    verb: str, X: Any, y: Any, groups: Groups, trained: Trained | None = None, *, labelled: bool = True
) -> Rows:
    """Check rows. trained: the models that are asked of them, which know columns and shape of a sample."""
    X, y, groups = _parts(verb, X, y, groups, trained, labelled=labelled)
    x, names = matrix_of(verb, X, trained)
    y = y if y is None or trained is None else trained.class_numbers(verb, y)
    labels = None if y is None else _labels(verb, y)
    if (
        labels is not None
        and trained is not None
        and trained.classes is not None
        and labels.dtype.kind == "f"
    ):
        labels = labels.astype(np.int64) if (labels == np.rint(labels)).all() else labels
    clients, owner = _owners(verb, groups, len(x))
    if labels is not None and len(labels) != len(x):
        raise InvalidInput(f"{verb}: X has {len(x)} rows but y has {len(labels)}")
    return Rows(x, labels, clients, owner, names)


class Parts(NamedTuple):
    """One table of all clients, its labels, and whose each row is."""

    X: Any
    y: Any
    groups: Any


def _parts(
    verb: str, X: Any, y: Any, groups: Groups, trained: Trained | None = None, *, labelled: bool = True
) -> Parts:
    if labelled and y is None:
        other = f" or {verb}(federation)" if verb in ("fit", "score") else ""
        raise InvalidInput(f"{verb}: y is missing; call {verb}(X, y, groups=...){other}")
    X, y, groups = _one_table(verb, X, y, groups, None if trained is None else len(trained.input_shape))
    if isinstance(y, str):
        X, y = _taken_out(verb, "y", X, y)
    if isinstance(groups, (str, int)):
        X, groups = _taken_out(verb, "groups", X, groups)
    if groups is None:
        raise InvalidInput(
            f"{verb}: groups is missing; say whose each row is, with one entry a row, or name the "
            "column of X that says so when you make it: IFCA(client=COLUMN)"
        )
    return Parts(X, y, groups)


def matrix_of(
    verb: str, X: Any, trained: Trained | None = None
) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """X as an array of numbers, and the names of its columns where it has any."""
    if not is_frame(X):
        return as_array("X", verb, X), None
    features = None if trained is None else trained.feature_names
    if trained is not None and trained.preparation is not None and features is not None:
        return features_of_frame(verb, X, trained.preparation, trained.columns().taken_as), features
    X = X if features is None else _in_order(verb, X, features)
    words = [name for name, kind in zip(X.columns, X.dtypes, strict=True) if kind.kind not in "fiub"]
    if words:
        raise InvalidInput(
            f"{verb}: the column {words[0]} of X holds words or dates, not numbers; encode it "
            "(scikit-learn's OneHotEncoder does) or leave it out"
        )
    return as_array("X", verb, X.to_numpy(dtype=np.float64)), tuple(map(str, X.columns))


def _one_table(verb: str, X: Any, y: Any, groups: Groups, axes: int | None) -> tuple[Any, Any, Groups]:
    """Lists with an array per client, one under the other; anything else as it is.

    axes: of a sample, where that is known: a list of images is a list of rows.
    """
    if not isinstance(X, (list, tuple)) or not X or np.ndim(X[0]) < (2 if axes is None else axes + 1):
        return X, y, groups
    if axes is None and (not isinstance(y, (list, tuple)) or np.ndim(y[0]) == 0):
        return X, y, groups  # with a label each
    names = [str(i) for i in range(len(X))] if groups is None else list(groups)
    for name, given in (("y", y), ("groups", names)):
        if given is not None and len(given) != len(X):
            raise InvalidInput(
                f"{verb}: X has an array for each of {len(X)} clients, {name} has {len(given)}"
            )
    sizes = [len(one) for one in X]
    if y is not None and sizes != (found := [len(one) for one in y]):
        i = next(i for i, size in enumerate(sizes) if size != found[i])
        raise InvalidInput(f"{verb}: client {names[i]}: X has {sizes[i]} rows but y has {found[i]}")
    tables = [matrix_of(verb, one)[0] for one in X]
    labels = None if y is None else np.concatenate([_labels(verb, one) for one in y])
    return np.concatenate(tables), labels, np.repeat(np.array(names, dtype=object), sizes)


def _taken_out(verb: str, what: str, X: Any, column: str | int) -> tuple[Any, Any]:
    """X without one column, and that column."""
    if not is_frame(X):
        X = np.asarray(X)
        if isinstance(column, str) or X.ndim != 2 or not -X.shape[1] <= column < X.shape[1]:
            raise InvalidInput(f"{verb}: {what} names the column {column!r}, which X does not have")
        return np.delete(X, column, axis=1), X[:, column]
    if column not in X.columns:
        raise InvalidInput(f"{verb}: {what} names the column {column!r}, which X does not have")
    return X.drop(columns=[column]), X[column]


def _in_order(verb: str, X: Any, features: tuple[str, ...]) -> Any:
    """The columns of training, in its order; others are not looked at."""
    columns = {str(name): name for name in X.columns}
    missing = [name for name in features if name not in columns]
    if missing:
        raise InvalidInput(f"{verb}: X has no column {missing[0]}, which was there in training")
    return X[[columns[name] for name in features]]


def _labels(verb: str, y: Any) -> NDArray[Any]:
    values = np.asarray(y)
    if values.dtype.kind in "OUST":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"{verb}: y holds words; number the classes from 0 (scikit-learn's LabelEncoder does)"
            ) from None
    labels = as_array("y", verb, values)
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _owners(verb: str, groups: Groups, n: int) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The clients' names, and of each row the place of its client among them."""
    given = np.asarray(groups)
    if given.ndim != 1 or len(given) != n:
        raise InvalidInput(
            f"{verb}: groups must have one entry for each of {n} rows, got shape {given.shape}"
        )
    values = given.tolist()
    for i, one in enumerate(values):
        if one is None or one != one:  # NaN is not itself
            raise InvalidInput(f"{verb}: groups does not say whose row {i} is")
    names = [str(one) for one in values]
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return tuple(place), np.array([place[name] for name in names], np.int64)
