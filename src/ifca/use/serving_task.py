"""The models of a run as functions: what a client is served by, of personal methods too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ifca.core.recipe import Recipe
from ifca.core.types import Task
from ifca.methods import method_of
from ifca.models import make_task
from ifca.runs.make import make_loss

if TYPE_CHECKING:
    from ifca.use.trained import Trained


def serving_task(trained: Trained) -> Task:
    """The model as a function, with the loss it was trained by.

    A personal method's parameters are more than the model's (Ditto: two models), and it says what of them
    answers.
    """
    recipe = Recipe(batch_norm=trained.config.batch_norm)
    weights, scaling = trained.header.get("class_weights"), trained.target_scaling
    task = make_task(
        trained.module,
        recipe,
        regression=trained.classes is None,
        device=torch.device("cpu"),
        loss=trained.given_loss or make_loss(trained.config, trained.code),
        class_weights=None if weights is None else tuple(weights),
        target_scale=None if scaling is None else scaling.scale,
    )
    return method_of(trained.header["algorithm"]).task(recipe, task) if trained.personal else task
