"""From a config to a job: the data it names, the model it names, the device it asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from ifca.core.errors import InvalidInput
from ifca.core.privacy_settings import Spent
from ifca.data import Federation
from ifca.methods import Aggregation, Method, register, register_aggregation
from ifca.models import BuiltIn, as_factory, choose_model
from ifca.models.task import Factory, Loss, Metric
from ifca.runs.auto_k import recipe_of
from ifca.runs.config import Config
from ifca.runs.continued import continued_federation
from ifca.runs.data_config import PublicData, SyntheticData
from ifca.runs.own_code import Code
from ifca.runs.own_data_config import GIVEN, FunctionData
from ifca.runs.own_modules import own_function
from ifca.runs.run_code import code_of
from ifca.runs.scaled import Scale, scaled
from ifca.runs.summary_file import finished_summary
from ifca.training import Job, choose_device
from ifca.training.checkpoint import models_of
from ifca.training.privacy import known_by

Kind = TypeVar("Kind")


def make_job(config: Config, federation: Federation | None = None, code: Code | None = None) -> Job:
    """The job of a config; federation: where it is loaded already; code: the user's, where it was read."""
    code = code_of(config) if code is None else code
    register_own(config, code)
    federation = federation or make_federation(config, code)
    if isinstance(config.data, SyntheticData):  # also where its clients are elsewhere
        federation = replace(federation, through_origin=True)
    before = config.warm_start or config.continues
    warm, header = (None, {}) if before is None else models_of(Path(before) / "models.safetensors")
    train = federation.train
    return Job(
        federation,
        recipe_of(vars(config), len(train)),
        make_model(config, federation, code, header.get("model")),
        loss=make_loss(config, code),
        metrics=make_metrics(config, code),
        engine=config.engine,
        device=choose_device(config.device),
        precision=config.precision,
        compiled=config.compiled,
        budget=None if config.memory_budget is None else config.memory_budget * 2**20,
        fast_path=config.fast_path,
        warm_start=warm,
        attack=None if config.attack is None else config.attack.of(train, config.seed),
        spent=_spent(Path(before)) if config.private and before is not None else None,
        other_data=known_by(train) if config.private and config.continues is not None else 0,
    )


def _spent(folder: Path) -> Spent | None:
    """By the run of that folder, where it was a private one."""
    return Spent.of((finished_summary(folder, ()) or {}).get("privacy"))


def register_own(config: Config, code: Code) -> None:
    """Make a method and a rule of the user's own known by the names that the config has: module:NAME."""
    if ":" in config.algorithm:
        method = _own("algorithm", config.algorithm, code, Method)
        register(replace(method, name=config.algorithm))
    if ":" in config.aggregation:
        rule = _own("aggregation", config.aggregation, code, Aggregation)
        register_aggregation(replace(rule, name=config.aggregation))


def _own(field: str, name: str, code: Code, kind: type[Kind]) -> Kind:
    found = own_function(field, name, code)
    if not isinstance(found, kind):
        raise InvalidInput(f"{field}: {name} must be of type {kind.__name__}, got {type(found).__name__}")
    return found


def make_federation(config: Config, code: Code | None = None) -> Federation:
    """Load or draw the data, and scale them as the config says, or as the run that is continued was."""
    if config.continues is not None:
        return continued_federation(config)
    data, model = config.data, config.model
    features, target = getattr(data, "standardise", False), getattr(data, "standardise_target", False)
    return scaled(
        read_federation(config, code),
        features,
        target,
        own_model=":" in model.name,
        own_loss=model.loss is not None,
    )


def scaled_alone(config: Config, federation: Federation, *, own_model: bool = False) -> Federation:
    """A federated client's own data, scaled by its own numbers where the config says so.

    A config that names no data of the user's may still be of clients who have theirs.
    """
    unsaid: Scale = False if isinstance(config.data, PublicData) else "auto"
    features: Scale = getattr(config.data, "standardise", unsaid)
    target: Scale = getattr(config.data, "standardise_target", unsaid)
    paper, model = isinstance(config.data, SyntheticData), config.model
    return scaled(
        replace(federation, through_origin=paper),
        features,
        target,
        own_model=own_model or ":" in model.name,
        own_loss=model.loss is not None,
    )


def read_federation(config: Config, code: Code | None = None) -> Federation:
    """Load or draw the data as they are."""
    if isinstance(config.data, FunctionData):
        return config.data.federation(code_of(config) if code is None else code)
    return config.data.federation(config.seed)


def make_loss(config: Config, code: Code) -> Loss | None:
    """The loss of the user's own, where the config names one."""
    name = config.model.loss
    return None if name is None else _callable("model.loss", name, code)


def make_metrics(config: Config, code: Code) -> dict[str, Metric]:
    """The metrics of the user's own, by the names of their functions."""
    return {name.rpartition(":")[2]: _callable("model.metrics", name, code) for name in config.model.metrics}


def make_model(
    config: Config, federation: Federation, code: Code, begun: dict[str, Any] | None = None
) -> Factory:
    """One of ifca's own models, or a function that makes the user's; begun: what auto goes on with."""
    model = config.model
    if model.name == GIVEN:
        raise InvalidInput("model.name is python: the model was given from Python; give it again as model=")
    if ":" in model.name:
        return as_factory(own_function("model.name", model.name, code))
    if model.name == "auto" and begun is not None:
        return BuiltIn.from_json(begun, federation.input_shape, federation.outputs)
    return built_in(model.name, federation, model.hidden)


def built_in(name: str, federation: Federation, hidden: tuple[int, ...] | None = None) -> BuiltIn:
    """The model of a name, or the one that the data suggest ("auto"): the same for configs and Python."""
    return choose_model(
        name,
        hidden,
        federation.input_shape,
        federation.outputs,
        regression=federation.classes is None,
        pixels=federation.train.x.dtype == torch.uint8,
        samples=federation.first_samples or int(federation.train.offsets[-1]),
        through_origin=federation.through_origin,
    )


class Given(Protocol):
    """What a training in Python says of its data and its model (IFCA's arguments)."""

    model: nn.Module | Factory | str | None
    loss: Loss | None
    standardise: Scale
    standardise_target: Scale


def given_model(given: Given, federation: Federation) -> tuple[Federation, Factory]:
    """The data and the model of a training in Python, as of a config; no model: "auto"."""
    if not isinstance(federation, Federation):
        raise InvalidInput(f"fit takes a Federation, got {type(federation).__name__}")
    name = "auto" if given.model is None else given.model
    federation = scaled(
        federation,
        given.standardise,
        given.standardise_target,
        own_model=not isinstance(name, str),
        own_loss=given.loss is not None,
    )
    return federation, built_in(name, federation) if isinstance(name, str) else as_factory(name)


def _callable(field: str, name: str, code: Code) -> Loss:
    found: Loss = own_function(field, name, code)
    if not callable(found):
        raise InvalidInput(f"{field}: {name} must be a function of outputs and y, got {found!r}")
    return found
