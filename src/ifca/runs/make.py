"""From a config to a job: the data it names, the model it names, the device it asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from ifca.core.errors import InvalidInput
from ifca.data import Federation
from ifca.methods import Aggregation, Method, register, register_aggregation
from ifca.models import as_factory, cifar_cnn, femnist_cnn, linear, logistic, mlp
from ifca.models.task import Factory, Loss, Metric
from ifca.runs.auto_k import recipe_of
from ifca.runs.config import Config
from ifca.runs.own_code import Code
from ifca.runs.own_data_config import GIVEN, FunctionData
from ifca.runs.own_modules import own_function
from ifca.runs.run_code import code_of
from ifca.training import Job, choose_device
from ifca.training.checkpoint import models_of

Kind = TypeVar("Kind")


def make_job(config: Config, federation: Federation | None = None, code: Code | None = None) -> Job:
    """The job of a config; federation: where it is loaded already; code: the user's, where it was read."""
    code = code_of(config) if code is None else code
    register_own(config, code)
    federation = federation or make_federation(config, code)
    warm = None if config.warm_start is None else models_of(Path(config.warm_start) / "models.safetensors")[0]
    return Job(
        federation,
        recipe_of(vars(config), len(federation.train)),
        make_model(config, federation.input_shape, federation.outputs, federation.classes is None, code),
        loss=make_loss(config, code),
        metrics=make_metrics(config, code),
        engine=config.engine,
        device=choose_device(config.device),
        precision=config.precision,
        compiled=config.compiled,
        budget=None if config.memory_budget is None else config.memory_budget * 2**20,
        fast_path=config.fast_path,
        warm_start=warm,
    )


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
    """Load or draw the data."""
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
    config: Config, input_shape: tuple[int, ...], outputs: int, regression: bool, code: Code
) -> Factory:
    """A function that makes a freshly initialised module."""
    model = config.model
    inputs, name = int(torch.Size(input_shape).numel()), model.name
    if name == "auto":
        name = "linear" if regression else "mlp"
    if ":" in name:
        return as_factory(own_function("model.name", name, code))
    if regression and name in ("logistic", "cifar-cnn", "femnist-cnn"):
        raise InvalidInput(
            f"model.name is {name}, which classifies, but the targets y are floats (regression)"
        )
    makers: dict[str, Factory] = {
        "linear": lambda: linear(inputs, outputs),
        "logistic": lambda: logistic(inputs, outputs),
        "mlp": lambda: mlp(inputs, outputs, model.hidden),
        "cifar-cnn": lambda: cifar_cnn(outputs),
        "femnist-cnn": lambda: femnist_cnn(outputs),
    }
    if name == GIVEN:
        raise InvalidInput("model.name is python: the model was given from Python; give it again as model=")
    if name not in makers:
        raise InvalidInput(
            f"model.name: unknown model {name} (known: {', '.join(makers)}, or module:function)"
        )
    return makers[name]


def _callable(field: str, name: str, code: Code) -> Loss:
    found: Loss = own_function(field, name, code)
    if not callable(found):
        raise InvalidInput(f"{field}: {name} must be a function of outputs and y, got {found!r}")
    return found
