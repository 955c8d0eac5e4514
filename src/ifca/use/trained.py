"""The models of a finished run, ready to be asked: with its model, its loss and its scaling of features."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.types import Params, Task, select
from ifca.data import Client, Federation, read_client
from ifca.data.assemble import as_array
from ifca.data.clients import features
from ifca.data.problems import refuse
from ifca.data.scaling import Scaling
from ifca.data.sources.columns import LABELS, Columns, Kind, features_of
from ifca.data.sources.folder import folder_clients, load_npz, table_clients
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import read_table
from ifca.methods import facts_of
from ifca.models import make_task
from ifca.models.task import Factory, Loss, made
from ifca.runs.config import Config
from ifca.runs.make import make_loss, make_model
from ifca.runs.own_code import Code
from ifca.runs.own_data_config import OwnFiles
from ifca.runs.personal_results import experience_of
from ifca.runs.results import MODELS, finished_summary
from ifca.runs.run_code import RUN, kept_code, run_id
from ifca.runs.run_folder import open_directory
from ifca.training.checkpoint import models_of
from ifca.use.usual import usual_losses

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
    def module(self) -> nn.Module:
        """The model as a module; its parameters are not the trained ones."""
        return made(self.factory).to(next(iter(self.theta.values())).dtype)

    @property
    def factory(self) -> Factory:
        """What makes the model."""
        outputs, regression = self.header["outputs"], self.classes is None
        named = (self.config, self.input_shape, outputs, regression, self.code)
        return make_model(*named) if self.given is None else self.given

    @cached_property
    def task(self) -> Task:
        """The model as a function, with the loss it was trained by."""
        loss, regression = self.given_loss or make_loss(self.config, self.code), self.classes is None
        return make_task(self.module, Recipe(), regression=regression, device=CPU, loss=loss)

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

    def columns(self) -> Columns:
        """How the run's tables were read; test rows and true clusters are of no interest now."""
        kind: Kind = "regression" if self.classes is None else "classification"
        data = self.config.data
        given = data.columns(self.config.seed) if isinstance(data, OwnFiles) else Columns()
        known = tuple(self.header.get("features") or ())
        return replace(given, kind=kind, features=known, test=None, cluster=None, test_share=None)

    def clients(self, path: Path) -> list[Client]:
        """The labelled clients of a file, of a folder of files, or of a table with a client column."""
        columns = self.columns()
        if path.is_dir():
            return folder_clients(path, columns)
        if path.suffix in TABLES and columns.client is not None:
            table = read_table(path, refuse)
            if table is not None and columns.client in table.columns:
                return table_clients(path, columns)
        return [read_client(path, columns)]

    def samples(self, path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """The features of one client as they are given, and its labels where the file has them."""
        columns = self.columns()
        if path.suffix in TABLES:
            table = read_table(path, refuse)
            assert table is not None
            if columns.client in table.columns and len(whose := set(table.text(str(columns.client)))) > 1:
                raise InvalidInput(f"{path}: holds rows of {len(whose)} clients; predict for one at a time")
            if not set(columns.label or LABELS) & table.columns.keys():
                return self._fitting(path, features_of(table, columns.features)), None
        else:
            content = load_npz(path)
            if "y" not in content and "x" in content:
                return self._fitting(path, as_array("x", str(path), content["x"])), None
        return self.federation([read_client(path, columns)], str(path), scaled=False).train.arrays(0)

    def _fitting(self, path: Path, x: NDArray[Any]) -> NDArray[Any]:
        if x.shape[1:] != self.input_shape or not len(x):
            raise InvalidInput(f"{path}: samples have shape {x.shape[1:]}, training had {self.input_shape}")
        return x

    def federation(self, clients: list[Client], where: str, *, scaled: bool = True) -> Federation:
        """Clients that the models can judge, features as in training; where: what to name."""
        federation = Federation.from_clients(clients, self.classes)
        federation.check_fits(where, self.input_shape, self.classes, self.header["outputs"])
        if self.scaling is None or not scaled:
            return federation
        train = replace(federation.train, x=self.scaling.apply(federation.train.x))
        return replace(federation, train=train, test=None, scaling=self.scaling)


def open_trained(
    directory: Path, trust: bool = False, model: Factory | None = None, loss: Loss | None = None
) -> Trained:
    """Read a finished run; one of local models has nothing for others.

    trust: run the model's and the loss's code also where the folder was not made by this user here. model,
    loss: those of a run that was trained on objects of a Python program.
    """
    config = open_directory(directory)
    if not (directory / MODELS).exists():
        raise InvalidInput(f"{directory}: has no {MODELS}; 'ifca resume {directory}' makes it")
    code = kept_code(directory, config, trust, ("model.name", "model.loss"))
    theta, header = models_of(directory / MODELS)
    if "algorithm" not in header or header.get("run") != run_id(directory):
        raise InvalidInput(f"{directory / MODELS}: does not hold the models of this run (the one of {RUN})")
    header.setdefault("personal", facts_of(header["algorithm"])["personal"])  # older ones do not say
    if header["personal"]:
        raise InvalidInput(f"{directory}: holds local models, one per client; a new client has none")
    experience = experience_of(finished_summary(directory) or {})
    return Trained(directory, config, theta, header, code, usual_losses(directory), model, loss, experience)
