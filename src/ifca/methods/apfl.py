"""APFL: each client is served by a mixture of its own model and a common one, and learns how much of each.

A client's model is  alpha v + (1 - alpha) w,  parameter by parameter. In every step a participant moves
1. the common model:  w <- w - gamma grad F_i(w)
2. its own:           v <- v - gamma alpha grad F_i(alpha v + (1 - alpha) w)
3. the share:         alpha <- alpha - gamma (<v - w, grad F_i(alpha v + (1 - alpha) w)> + 0.02 alpha)
   (kept between 0 and 1)
and sends w; v and alpha stay.

Source: Deng, Kamani, Mahdavi 2020. alpha begins at 1/2. The term 0.02 alpha is that of public versions.
Deviation: the gradients of 1 to 3 are taken at the same point.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.client import batches, estimate, gradient, local_step
from ifca.core.recipe import Recipe
from ifca.core.sampling import Plan
from ifca.core.types import ClientReply, Data, Params, Task, select
from ifca.methods.personal_models import WITH_COMMON, common_part, own_part, seen_as, widely, with_common

SHARE = ".share"  # alpha, one number among a client's parameters
DECAY = 0.02


def widened(recipe: Recipe, model: Params) -> Params:
    """Both models and the share."""
    like = next(iter(model.values()))
    return {**with_common(recipe, model), SHARE: torch.full((), 0.5, dtype=like.dtype, device=like.device)}


def mixed(theta: Params) -> Params:
    """The model that serves the client; a plain one serves as it is. Also of stacked ones [m, ...]."""
    if SHARE not in theta:
        return theta
    alpha, common = theta[SHARE], common_part(theta)
    return {
        name: _between(alpha, value, common[name]) for name, value in own_part(theta).items() if name != SHARE
    }


def _between(alpha: Tensor, own: Tensor, common: Tensor) -> Tensor:
    share = alpha.reshape((*alpha.shape, *[1] * (own.dim() - alpha.dim())))
    return share * own + (1 - share) * common


def client(
    task: Task, recipe: Recipe, step: float, theta: Params, data: Data, plan: Plan, own: Tensor
) -> ClientReply:
    """Common model, own model and share, step by step."""
    j, losses = estimate(task, theta, data, plan, own)
    mine = select(theta, j)
    for batch in batches(recipe.local_steps, task, data, plan):
        alpha, w = mine[SHARE], common_part(mine)
        v = {name: mine[name] for name in w}
        slope = gradient(task, mixed(mine), batch)
        apart = torch.stack([((v[n] - w[n]) * slope[n]).sum() for n in w]).sum()
        mine = widely(
            {n: x - step * alpha * slope[n] for n, x in v.items()}, local_step(task, w, step, batch)
        )
        decay = DECAY * (batch.weight.sum() > 0)  # no samples: no step
        mine[SHARE] = (alpha - step * (apart + decay * alpha)).clamp(0, 1)
    return ClientReply(j, losses, mine)


APFL = replace(
    WITH_COMMON,
    name="apfl",
    title="APFL",
    about="APFL: each client mixes a model of its own with a common one, and learns how much of each",
    client=client,
    widened=widened,
    task=seen_as(mixed),
)
