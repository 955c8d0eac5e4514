"""A federation: clients to train on and clients to test on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ifca.core.errors import InvalidInput
from ifca.data.assemble import put_together
from ifca.data.clients import Client, Clients
from ifca.data.preparation import Preparation
from ifca.data.scaling import Scaling


@dataclass(frozen=True, repr=False)
class Federation:
    """Clients to train on, and clients to test on.

    A test client with the id of a training client is the same client.
    """

    train: Clients
    test: Clients | None = None
    classes: int | None = None  # None: regression
    scaling: Scaling | None = None  # what was done to the features, where they were standardised
    features: tuple[str, ...] | None = None  # their names, where they have any
    preparation: Preparation | None = None  # how the columns of tables became features
    target_scaling: Scaling | None = None  # what was done to the targets of a regression
    through_origin: bool = False  # y = <x, theta*> as drawn (the paper's): no intercept, nothing is scaled
    class_counts: tuple[int, ...] | None = None  # training samples of each class, where they are elsewhere
    first_samples: int | None = None  # training samples of the first clients, where others may join

    def __repr__(self) -> str:
        """In a line."""
        kind = "regression" if self.classes is None else f"{self.classes} classes"
        test = "no test data" if self.test is None else f"{len(self.test)} test clients"
        samples = f"{int(self.train.offsets[-1])} samples of shape {self.input_shape}"
        return f"Federation({len(self.train)} clients, {samples}, {kind}, {test})"

    @cached_property
    def test_owner(self) -> NDArray[np.int64]:
        """For each test client its place among the training clients, -1: never seen in training."""
        place = {name: i for i, name in enumerate(self.train.ids)}
        return np.array([place.get(name, -1) for name in self.test.ids] if self.test else [], np.int64)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the classes are called; None: a regression, or classes that are numbers from 0."""
        return None if self.preparation is None else self.preparation.class_names

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.train.x.shape[1:])

    def check_fits(self, where: str, input_shape: tuple[int, ...], classes: int | None, outputs: int) -> None:
        """Refuse data that a model trained on such samples cannot judge; where: what to name."""
        if self.input_shape != input_shape:
            raise InvalidInput(f"{where}: samples have shape {self.input_shape}, training had {input_shape}")
        if (self.classes is None) != (classes is None):
            kind = "floats (regression)" if classes is None else "class numbers"
            raise InvalidInput(f"{where}: y must be {kind}, as in training")
        if self.outputs != outputs:
            raise InvalidInput(f"{where}: y has {self.outputs} target(s) a sample, training had {outputs}")

    def to(self, device: torch.device) -> Federation:
        """The same federation with its data on a device."""
        return replace(self, train=self.train.to(device), test=self.test and self.test.to(device))

    def standardised(self) -> Federation:
        """The same federation with every feature at mean 0 and variance 1 over all training samples."""
        return self.with_features_as(Scaling.of(self.train))

    def with_features_as(self, scaling: Scaling) -> Federation:
        """The same federation with its features scaled by given numbers."""
        train, test = (part and replace(part, x=scaling.apply(part.x)) for part in (self.train, self.test))
        assert train is not None
        return replace(self, train=train, test=test, scaling=scaling)

    def with_scaled_targets(self) -> Federation:
        """The same federation with every target at mean 0 and variance 1 over all training samples."""
        return self.with_targets_as(Scaling.of_targets(self.train))

    def with_targets_as(self, scaling: Scaling) -> Federation:
        """The same federation with its targets scaled by given numbers."""
        train, test = (part and replace(part, y=scaling.apply(part.y)) for part in (self.train, self.test))
        assert train is not None
        return replace(self, train=train, test=test, target_scaling=scaling)

    def count_classes(self) -> tuple[int, ...]:
        """Training samples of each class, summed over the clients."""
        assert self.classes is not None
        if self.class_counts is not None:
            return self.class_counts
        if not len(self.train.y):
            raise InvalidInput(
                'class_weights: clients did not say what they have; theirs must be "balanced" too'
            )
        return tuple(torch.bincount(self.train.y.long(), minlength=self.classes).tolist())

    def class_weights(
        self, asked: Literal["balanced"] | tuple[float, ...] | None
    ) -> tuple[float, ...] | None:
        """What a sample of each class counts in training; balanced: n / (classes there are x its samples)."""
        if asked is None:
            return None
        if self.classes is None:
            raise InvalidInput("class_weights: the targets y are floats (regression), which have no classes")
        if asked != "balanced":
            if len(asked) != self.classes:
                raise InvalidInput(f"class_weights has {len(asked)} numbers for {self.classes} classes")
            return asked
        counts = self.count_classes()
        present = sum(count > 0 for count in counts)
        return tuple(sum(counts) / (present * count) if count else 1.0 for count in counts)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all data, to notice that it changed between two parts of a run."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.train, self.test):
            if part is not None:
                digest.update("\n".join(part.ids).encode())
                for values in (part.x.cpu().numpy(), part.y.cpu().numpy(), part.offsets):
                    digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()

    @property
    def outputs(self) -> int:
        """Numbers a model has to give for a sample: one per class, or one per target."""
        return self.classes or int(np.prod(self.train.y.shape[1:], dtype=np.int64))

    @classmethod
    def from_clients(cls, clients: Iterable[Client], classes: int | None = None) -> Federation:
        """Check the clients and put them together. Input arrays are copied, never changed."""
        given = list(clients)
        together = put_together(given, classes)
        assert together is not None
        return cls(*together, features=given[0].features, preparation=given[0].preparation)

    @classmethod
    def from_arrays(
        cls,
        x: Sequence[ArrayLike],
        y: Sequence[ArrayLike],
        x_test: Sequence[ArrayLike] | None = None,
        y_test: Sequence[ArrayLike] | None = None,
        *,
        ids: Sequence[str] | None = None,
        clusters: Sequence[int] | None = None,
        classes: int | None = None,
    ) -> Federation:
        """From lists with an array per client.

        x, y: training data; x_test, y_test: data to test on; ids: names (default 0, 1, ...); clusters: the
        true clusters, to compare with, never trained on; classes: number of classes (default: the largest
        label and one; float targets make it a regression).
        """
        lists = {"y": y, "x_test": x_test, "y_test": y_test, "ids": ids, "clusters": clusters}
        for name, given in lists.items():
            if given is not None and len(given) != len(x):
                raise InvalidInput(f"{name} has {len(given)} entries but x has {len(x)} clients")

        def at(given: Sequence[Any] | None, i: int) -> Any:
            return None if given is None else given[i]

        return cls.from_clients(
            [
                Client(x[i], y[i], at(x_test, i), at(y_test, i), at(ids, i), at(clusters, i))
                for i in range(len(x))
            ],
            classes,
        )

    @classmethod
    def from_datasets(
        cls,
        train: Sequence[Any] | Mapping[str, Any],
        test: Sequence[Any] | None = None,
        *,
        ids: Sequence[str] | None = None,
        clusters: Sequence[int] | None = None,
        classes: int | None = None,
    ) -> Federation:
        """From a torch dataset per client, each giving pairs (x, y).

        train: datasets in order, or a name for each client: {name: dataset} or {name: (train, test)}, where
        test may be None.
        """
        if isinstance(train, Mapping):
            pairs = [value if isinstance(value, tuple) else (value, None) for value in train.values()]
            ids, train, test = list(train), [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        names = [str(i) for i in range(len(train))] if ids is None else ids
        x, y = _read_datasets(train, names)
        x_test, y_test = _read_datasets(test, names) if test is not None else (None, None)
        return cls.from_arrays(x, y, x_test, y_test, ids=ids, clusters=clusters, classes=classes)


def _read_datasets(datasets: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], list[Any]]:
    both = [_read_dataset(dataset, name) for dataset, name in zip(datasets, names, strict=True)]
    return [x for x, _ in both], [y for _, y in both]


def _read_dataset(dataset: Any, name: str) -> tuple[Any, Any]:
    """All samples of one client's dataset; None: it has none."""
    if dataset is None:
        return None, None
    try:
        pairs = [dataset[i] for i in range(len(dataset))]
        return np.array([np.asarray(x) for x, _ in pairs]), np.array([np.asarray(y) for _, y in pairs])
    except Exception as reason:
        what = f"{type(reason).__name__}: {reason}"
        raise InvalidInput(
            f"client {name}: its dataset must give pairs (x, y) of one shape ({what})"
        ) from reason
