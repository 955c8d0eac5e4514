"""FedRC: FedEM, in which labels alone make no cluster. Clients that hold few classes share models; clients
for whom like samples have another class do not.

As FedEM (fedem.py), but for
1. E step:  q_ij ~ pi_j exp(-f(theta_j; z_i)) / C_j(y_i), where C_j(y) is the share of class y among model j's
   samples: a model gains nothing by having seen a class more often than others
2. participants send besides, for each model and class, the mean over their samples of q_ij [y_i = y]; the
   server's average of these, divided by its sum over classes, is the next round's C

Source: Guo, Tang and Lin 2024. Deviations: C is that of the round before, over its participants, who count as
`aggregation` says (weighted = true: by samples, as there); before the first round all classes are equal.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.types import Batch, Data, Params, Task
from ifca.methods import fedem
from ifca.methods.fedem import FEDEM, LABELS, PI
from ifca.methods.personal_models import alike_in_training

LEAST = 1e-6  # a class that a model's samples do not have is taken to have this share of them


def widened(recipe: Recipe, model: Params) -> Params:
    """K models, equal shares, classes that are equally frequent. The last layer has a row for each class."""
    wide, classes = fedem.widened(recipe, model), len(list(model.values())[-1])
    even = torch.full((recipe.k, classes), 1 / (recipe.k * classes))
    return {**wide, LABELS: even.to(wide[PI])}


def shares(task: Task, theta: Params, data: Data | Batch) -> Tensor:
    """E step: q [n, k]."""
    table = theta[LABELS].clamp(min=0)
    frequency = (table / table.sum(1, keepdim=True).clamp(min=1e-30)).clamp(min=LEAST)
    outputs, rows = fedem.outputs_of(task, theta, data.x), table.shape[1]
    if (classes := outputs[0][0].numel()) > rows:
        raise InvalidInput(
            f"fedrc: the model's last layer has {rows} rows, but the model tells {classes} classes apart; "
            "define the layer that tells them last"
        )
    score = theta[PI].clamp(min=1e-30).log() - fedem.losses_of(task, outputs, data.y)
    return torch.softmax(score - frequency.log().T[data.y.long()], 1)


def labels(theta: Params, q: Tensor, data: Data) -> Params:
    """The mean over samples of q_ij [y_i = y]: [k, c]."""
    of = torch.arange(theta[LABELS].shape[1], device=q.device)
    is_class = (data.y[:, None] == of).to(q.dtype)
    return {LABELS: q.T @ is_class / data.weight.sum().clamp(min=1)}


def classifies(recipe: Recipe, task: Task) -> None:
    """Classes are what is evened out; their shares are averages, not steps."""
    alike_in_training(recipe, task)
    if not task.classifies:
        raise InvalidInput(
            f"{recipe.algorithm}: evens out how often classes are, so it is for classification"
        )
    if recipe.server_optimizer != "none":
        raise InvalidInput(f"{recipe.algorithm}: averages shares of classes; server_optimizer must be none")


FEDRC = replace(
    FEDEM,
    name="fedrc",
    title="FedRC",
    about="FedRC: k models for all, mixed as in FedEM, but not parted by labels alone",
    client=fedem.turn(shares, labels),
    widened=widened,
    suits=classifies,
)
