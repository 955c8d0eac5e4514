"""The models of a finished run, ready to be asked: with its model, its loss and its scaling of features."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ifca.core.errors import InvalidInput
from ifca.core.types import Params, Task, select
from ifca.data import Client, Federation, read_client
from ifca.data.class_names import class_numbers
from ifca.data.clients import features
from ifca.data.preparation import Preparation
from ifca.data.problems import refuse
from ifca.data.scaling import Scaling
from ifca.data.sources.columns import Columns, Kind
from ifca.data.sources.folder import folder_clients, table_clients
from ifca.data.sources.partly_labelled import Unlabelled, partly_labelled
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import kind_of, read_table
from ifca.models import BuiltIn, as_factory
from ifca.models.built_in import HIDDEN
from ifca.models.task import Factory, Loss, made
from ifca.runs.clients_table import read_clients
from ifca.runs.config import Config
from ifca.runs.own_code import Code
from ifca.runs.own_data_config import GIVEN, GivenData, OwnFiles
from ifca.runs.own_modules import own_function
from ifca.use.serving_task import serving_task

if TYPE_CHECKING:
    from ifca.runs.personal_results import Experience

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Trained:
    """The models of a run, or of a fitted IFCA, and what is known of their training."""

    directory: Path | None  # of the run; None: it is in memory only
    config: Config
    theta: Params  # [models, ...]
    header: dict[str, Any]
    code: Code  # the run's own, not what lies where we stand
    usual: dict[int, float] = field(default_factory=dict)  # by cluster: the loss that few clients exceed
    given: Factory | None = None  # a model that was given from Python
    given_loss: Loss | None = None
    experience: Experience | None = None  # what personalising did for the run's own clients

    def __getstate__(self) -> dict[str, Any]:
        """Only the fields: what is made from them is made again, and cannot be pickled."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def where(self) -> str:
        """What to name in a complaint."""
        return "this model" if self.directory is None else str(self.directory)

    @property
    def classes(self) -> int | None:
        """Number of classes; None: regression."""
        classes: int | None = self.header["classes"]
        return classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.header["input_shape"])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of the features, where they have any."""
        names = self.header.get("features")
        return None if names is None else tuple(names)

    @cached_property
    def scaling(self) -> Scaling | None:
        """What was done to the features in training."""
        return Scaling.from_json(self.header.get("scaling"))

    @cached_property
    def target_scaling(self) -> Scaling | None:
        """What was done to the targets."""
        return Scaling.from_json(self.header.get("target_scaling"))

    def in_units(self, outputs: Tensor) -> Tensor:
        """What a model says, in the units of the targets as they are given."""
        return outputs if self.target_scaling is None else self.target_scaling.undo(outputs)

    def targets(self, y: Tensor) -> Tensor:
        """Labels or targets as they are given -> as the models saw them in training."""
        return y if self.target_scaling is None else self.target_scaling.apply(y)

    @cached_property
    def module(self) -> nn.Module:
        """The model as a module; its parameters are not the trained ones."""
        try:
            return made(self.factory).to(next(iter(self.theta.values())).dtype)
        except InvalidInput as reason:
            raise InvalidInput(f"{self.where}: {reason}") from reason

    @property
    def factory(self) -> Factory:
        """What makes the model."""
        if self.given is not None:
            return self.given
        if self.built_in is not None:
            return self.built_in
        name = self.config.model.name
        if ":" not in name:
            raise InvalidInput(
                "model.name is python: the model was given from Python; give it again as model="
            )
        return as_factory(own_function("model.name", name, self.code))

    @property
    def built_in(self) -> BuiltIn | None:
        """The model, where it is one of ifca's own; None: the user's."""
        name, model = self.config.model.name, self.header.get("model")
        known = self.input_shape, self.header["outputs"]
        if ":" in name or (name == GIVEN and (self.given_loss is None or model is None)):
            return None
        if model is not None:
            return BuiltIn.from_json(model, *known)
        if name == "auto":  # headers of older versions do not say which; linear had no intercept
            name = "linear" if self.classes is None else "mlp"
        return BuiltIn(name, *known, tuple(self.config.model.hidden or HIDDEN), intercept=False)

    @cached_property
    def task(self) -> Task:
        """The model as a function, with the loss it was trained by."""
        return serving_task(self)

    @property
    def personal(self) -> bool:
        """Whether every client has a model of its own, and others have none."""
        return bool(self.header["personal"])

    @property
    def live(self) -> list[int]:
        """The numbers of the clusters that have a model, in the order of theta."""
        clusters: list[int] = self.header["clusters"]
        return clusters

    def model(self, j: int) -> Params:
        """The model of one cluster."""
        if j not in self.live:
            raise InvalidInput(f"{self.where}: has no cluster {j} (it has {', '.join(map(str, self.live))})")
        return select(self.theta, self.live.index(j))

    def inputs(self, x: Tensor) -> Tensor:
        """Features as they are given -> as the models saw them in training."""
        if self.header.get("pixels") and x.dtype != torch.uint8 and not x.is_floating_point():
            if len(x) and not 0 <= int(x.min()) <= int(x.max()) <= 255:
                raise InvalidInput("x: training had pixels from 0 to 255, this has others")
            x = x.to(torch.uint8)
        scaled = x if self.scaling is None else self.scaling.apply(x)
        return features(scaled, next(iter(self.theta.values())).dtype)

    @cached_property
    def preparation(self) -> Preparation | None:
        """How the columns of tables became features; None: it was trained on arrays."""
        kept, names = self.header.get("preparation"), self.header.get("features")
        if kept is None and names:  # an older run, whose tables had columns of numbers only
            return Preparation.of_numbers(names, self._reading.label, self.classes is None)
        return Preparation.from_json(kept)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the classes are called; None: a regression, or classes that are numbers from 0."""
        return None if self.preparation is None else self.preparation.class_names

    @cached_property
    def known(self) -> dict[str, int]:
        """The clusters of the run's own clients, by their names."""
        rows = [] if self.directory is None else read_clients(self.directory)
        clusters = {row["id"]: int(row["cluster"]) for row in rows if row["train_samples"] != "0"}
        return {name: j for name, j in clusters.items() if j in self.live}

    def class_numbers(self, where: str, y: Any) -> Any:
        """Labels as they are given, words or other numbers than 0, 1, ... -> class numbers."""
        return y if self.class_names is None else class_numbers(where, y, self.class_names)

    @property
    def _reading(self) -> Columns:
        """How the run's config reads tables."""
        data = self.config.data
        client = str(data.client) if isinstance(data, GivenData) and data.client is not None else None
        return data.reading(self.config.seed) if isinstance(data, OwnFiles) else Columns(client=client)

    def columns(self) -> Columns:
        """How the run's tables were read; test rows and true clusters are of no interest now."""
        kind: Kind = "regression" if self.classes is None else "classification"
        known = self.preparation
        names = () if known is None else tuple(column.name for column in known.used)
        given = self._reading if known is None else replace(self._reading, label=known.label)
        given = replace(given, kind=kind, classes=self.classes, features=names, preparation=known)
        return replace(given, test=None, cluster=None, test_share=None)

    def clients(self, path: Path, client: str | None = None) -> list[Client]:
        """The labelled clients of a file, of a folder of files, or of a table with a client column."""
        columns = self.columns() if client is None else replace(self.columns(), client=client)
        if path.is_dir():
            return folder_clients(path, columns)
        if kind_of(path) in TABLES and columns.client is not None:
            table = read_table(path, refuse)
            if table is not None and (client is not None or columns.client in table.columns):
                return table_clients(path, columns)
        return [read_client(path, columns)]

    def with_and_without_labels(
        self, path: Path, client: str | None = None
    ) -> tuple[list[Client], list[Unlabelled]]:
        """The same clients; those without labels apart."""
        columns = self.columns() if client is None else replace(self.columns(), client=client)
        return partly_labelled(path, columns, self._reading)

    def federation(self, clients: list[Client], where: str, *, scaled: bool = True) -> Federation:
        """Clients that the models can judge, features as in training; where: what to name."""
        federation = Federation.from_clients(clients, self.classes)
        federation.check_fits(where, self.input_shape, self.classes, self.header["outputs"])
        if not scaled:
            return federation
        x, y = federation.train.x, self.targets(federation.train.y)
        train = replace(federation.train, x=x if self.scaling is None else self.scaling.apply(x), y=y)
        return replace(
            federation, train=train, test=None, scaling=self.scaling, target_scaling=self.target_scaling
        )
