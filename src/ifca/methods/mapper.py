"""MAPPER: each client is served by its own model and a common one together, in shares that it chooses.

A client answers with the probabilities  lambda p_own(x) + (1 - lambda) p_common(x)  (a regression: values).
In every round a participant
1. takes the round's steps on its own model for its own loss, with four in five of its samples
2. for each lambda of 0, 0.1, ..., 1 takes them on the common model for the loss of the mixture
3. keeps the lambda, and the common model, with the lowest loss of the mixture on the fifth
4. sends the common model; its own and lambda stay

Source: Mansour, Mohri, Ro, Suresh 2020 (no code of theirs is public). Deviations: the own model descends
its own loss, since the mixture's does not move it where lambda is 0, and it would never be chosen again;
every fifth sample chooses lambda, so that a model that has learned its samples by heart does not win.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.client import batches, estimate, gradient, local_update, mean_loss
from ifca.core.recipe import Recipe
from ifca.core.sampling import Plan
from ifca.core.types import ClientReply, Data, Params, Task, select
from ifca.methods.apfl import SHARE, widened
from ifca.methods.personal_models import (
    COMMON,
    LIKE_LOCAL,
    alike_in_training,
    common_names,
    common_part,
    mixture,
)

GRID = tuple(i / 10 for i in range(11))
HELD = 5  # every fifth sample chooses the share


def task_of(_recipe: Recipe, task: Task) -> Task:
    """The mixture's outputs; a plain model's are its own."""

    def output(theta: Params, x: Tensor) -> Tensor:
        common = common_part(theta)
        if not common:
            return task.output(theta, x)
        share = torch.stack([theta[SHARE], 1 - theta[SHARE]])
        both = [task.output({name: theta[name] for name in common}, x), task.output(common, x)]
        return mixture(share, torch.stack(both), task)

    penalty = task.penalty

    def penalised(theta: Params) -> Tensor:
        assert penalty is not None
        return penalty(common_part(theta) or theta)

    return replace(task, output=output, penalty=None if penalty is None else penalised, first=None)


def client(
    task: Task, recipe: Recipe, step: float, theta: Params, data: Data, plan: Plan, own: Tensor
) -> ClientReply:
    """All shares are tried, the best is kept."""
    j, losses = estimate(task, theta, data, plan, own)
    sent = select(theta, j)
    held = (torch.arange(len(data.weight), device=data.weight.device) % HELD == HELD - 1).to(data.weight)
    learning, choosing = (data._replace(weight=data.weight * part) for part in (1 - held, held))
    steps = list(batches(recipe.local_steps, task, learning, plan))
    mine = local_update(task, {name: sent[name] for name in common_part(sent)}, step, steps)
    tried: list[Params] = []
    for share in GRID:
        model = {**sent, **mine, SHARE: torch.full_like(sent[SHARE], share)}
        for batch in steps:
            slope = gradient(task, model, batch)
            model = {n: v - step * slope[n] if n.startswith(COMMON) else v for n, v in model.items()}
        tried.append(model)
    found = torch.stack([mean_loss(task, model, choosing) for model in tried])
    best = found.nan_to_num(nan=torch.inf).argmin()
    return ClientReply(j, losses, {n: torch.stack([model[n] for model in tried])[best] for n in sent})


MAPPER = replace(
    LIKE_LOCAL,
    name="mapper",
    title="MAPPER",
    about="MAPPER: each client is served by its own model and a common one, in shares that it chooses",
    client=client,
    widened=widened,
    task=task_of,
    suits=alike_in_training,
    shared=common_names,
)
