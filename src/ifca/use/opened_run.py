"""Opening a finished run: every file is checked before the models are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ifca.core.errors import InvalidInput, Unreadable
from ifca.core.recipe import Recipe
from ifca.core.types import Params
from ifca.methods import facts_of, method_of
from ifca.models.batch_norm import entries_of
from ifca.models.task import Factory, Loss, made
from ifca.runs.auto_k import most_clusters
from ifca.runs.clients_table import CLIENTS
from ifca.runs.personal_results import experience_of
from ifca.runs.run_code import RUN, kept_code, run_id
from ifca.runs.run_folder import open_directory
from ifca.runs.summary_file import MODELS, finished_summary
from ifca.runs.usual import usual_losses
from ifca.training.checkpoint import models_of
from ifca.use.trained import Trained

NEEDED = ("input_shape", "outputs", "classes")  # of a header; the first versions did not write them


def open_trained(
    directory: Path,
    trust: bool = False,
    model: Factory | None = None,
    loss: Loss | None = None,
    *,
    personal: bool = False,
) -> Trained:
    """Read a finished run. personal: also one with a model per client, which has nothing for others.

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
    if header["personal"] and not personal:
        raise InvalidInput(
            f"{directory}: holds a model per client, for nobody else; 'ifca predict {directory} FILE' serves "
            "its own clients by their models"
        )
    _check_needed(directory, header)
    experience = experience_of(finished_summary(directory, (MODELS, CLIENTS)) or {})
    usual = usual_losses(directory)
    trained = Trained(directory, config, theta, header, code, usual, model, loss, experience)
    _check_parameters(trained)
    return trained


def _check_needed(directory: Path, header: dict[str, Any]) -> None:
    for name in NEEDED:
        if name not in header:
            what = f"its header does not say {name}, as those of the first versions of ifca"
            raise InvalidInput(f"{directory / MODELS}: {what}; its models cannot be used")


def _check_parameters(trained: Trained) -> None:
    """The parameters are those of the model that the header names; nothing is allocated to see that."""
    if trained.built_in is None:
        return
    file = f"{trained.where}/{MODELS}"
    try:
        with torch.device("meta"):
            plain = entries_of(made(trained.built_in))
            wide = _widened(trained, plain) if trained.personal else plain
            expected = {name: value.shape for name, value in wide.items()}
    except InvalidInput as reason:
        raise Unreadable(f"{file}: {reason}; it was altered") from reason
    found = {name: value.shape[1:] for name, value in trained.theta.items()}
    for name in sorted({*expected, *found}):
        if found.get(name) != expected.get(name):
            shapes = [None if one is None else list(one) for one in (found.get(name), expected.get(name))]
            told = f"{name} has the shape {shapes[0]}, the model {trained.built_in.name} {shapes[1]}"
            raise Unreadable(f"{file}: {told}; it was altered")


def _widened(trained: Trained, model: Params) -> Params:
    """What a client of a personal method has, which is more than the model."""
    method = method_of(trained.header["algorithm"])
    recipe = Recipe(k=most_clusters(trained.config.k, method, 1))
    return method.widened(recipe, model)
