"""Assignment of a client never seen in training: one call."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from ifca.core.errors import InvalidInput
from ifca.core.identity import identity
from ifca.core.recipe import Recipe
from ifca.data import Federation, read_client
from ifca.engines.checkpoint import load_tensors
from ifca.engines.loop import LoopEngine
from ifca.experiments.build import make_model
from ifca.experiments.directory import open_directory
from ifca.experiments.results import MODELS
from ifca.models import make_task
from ifca.models.task import made


def assign_client(directory: Path, file: Path) -> dict[str, Any]:
    """Losses of the run's k models on the client's data; its cluster is the one with the lowest."""
    config = open_directory(directory)
    if not (directory / MODELS).exists():
        raise InvalidInput(f"{directory}: has no {MODELS}; 'ifca resume {directory}' makes it")
    theta, header = load_tensors(directory / MODELS)
    if header["algorithm"] == "local":
        raise InvalidInput(f"{directory}: holds local models, one per client; a new client has none")
    federation = Federation.from_clients([read_client(file)], header["classes"])
    shape, outputs, regression = tuple(header["input_shape"]), header["outputs"], header["classes"] is None
    federation.check_fits(str(file), shape, header["classes"], outputs)
    module = made(make_model(config.model, shape, outputs, regression))
    recipe = Recipe()
    dtype = next(iter(theta.values())).dtype
    task = make_task(module.to(dtype), recipe, regression=regression, device=torch.device("cpu"))
    scores = LoopEngine(task, recipe, federation.train).score(theta, federation.train)
    if not bool(torch.isfinite(scores.loss).any()):
        raise InvalidInput(f"{file}: no model gives a finite loss on this data; is it scaled as in training?")
    return {
        "client": file.stem,
        "cluster": int(identity(scores.loss)[0]),
        "losses": [loss if math.isfinite(loss) else None for loss in scores.loss[0].tolist()],
        "samples": len(federation.train.x),
    }
