"""Per-FedAvg: a common model from which one gradient step on a client's own data makes a good model for it.

In every step of a round a participant, with samples D, D' and D'' of its own,
1. adapts:        w' = w - alpha grad F(w; D)
2. first order:   w <- w - beta g,  g = grad F(w'; D')
   Hessian-free:  w <- w - beta (g - alpha d),
                  d = [grad F(w + delta g; D'') - grad F(w - delta g; D'')] / (2 delta)
and sends w; the server averages. A client is served by w - alpha grad F(w; all of its training data),
which it makes anew from the model that it is sent; after the last round all do that once more (finish).

Source: Fallah, Mokhtari, Ozdaglar 2020. beta is `step_size`, alpha `inner_step_size` (none: the same), delta
0.001. Deviations: the three samples are a batch of the round and the two before it; on whole data they are
the same. Between rounds a client's model is adapted from what it was last sent.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ifca.core.client import batches, estimate, gradient, local_step
from ifca.core.recipe import Recipe
from ifca.core.sampling import Plan
from ifca.core.types import Batch, ClientReply, ClusterState, Data, Params, Task, select
from ifca.methods.method import Ask, Event, Problem
from ifca.methods.personal_models import WITH_COMMON, common_part, own_part, widely

DELTA = 1e-3


def client(
    task: Task,
    recipe: Recipe,
    step: float,
    theta: Params,
    data: Data,
    plan: Plan,
    own: Tensor,
    *,
    hessian_free: bool = False,
) -> ClientReply:
    """The turn of one client; what it sends of its own is the adapted model."""
    j, losses = estimate(task, theta, data, plan, own)
    w = common_part(select(theta, j))
    alpha = recipe.inner_step_size or recipe.step_size
    served = local_step(task, w, alpha, data)
    before: tuple[Batch, Batch] | None = None
    for here in batches(recipe.local_steps, task, data, plan):
        there, beyond = before or (here, here)
        g = gradient(task, local_step(task, w, alpha, here), there)
        if hessian_free:
            up, down = (
                gradient(task, {n: x + s * DELTA * g[n] for n, x in w.items()}, beyond) for s in (1, -1)
            )
            g = {n: x - alpha * (up[n] - down[n]) / (2 * DELTA) for n, x in g.items()}
        moves = step * (here.weight.sum() > 0)  # no samples: no step
        w = {n: x - moves * g[n] for n, x in w.items()}
        before = _last_two(here, there, beyond)
    return ClientReply(j, losses, widely(served, w))


def _last_two(here: Batch, there: Batch, beyond: Batch) -> tuple[Batch, Batch]:
    """The batch and the one before it; where it has no samples, the two before it.

    A small client beside large ones has batches without samples at the end of every epoch.
    """
    some = here.weight.sum() > 0

    def chosen(new: Batch, old: Batch) -> Batch:
        result: Batch = tree_map(lambda a, b: None if a is None else torch.where(some, a, b), new, old)
        return result

    return chosen(here, there), chosen(there, beyond)


def finish(problem: Problem, state: ClusterState, ask: Ask) -> tuple[ClusterState, list[Event]]:
    """All clients adapt the last common model."""
    replies = ask.turn(state, torch.arange(problem.m), state.identity)
    heard = replies.total.weight.cpu() > 0
    theta = dict(state.theta)
    for name in own_part(theta):
        adapted = replies.total.total[name] / replies.total.weight.clamp(min=1e-300).reshape(
            -1, *[1] * (theta[name].dim() - 1)
        )
        there = heard.to(theta[name].device).reshape(-1, *[1] * (theta[name].dim() - 1))
        theta[name] = torch.where(there, adapted.to(theta[name].dtype), theta[name])
    down, up = state.bytes_down, state.bytes_up
    if replies.carried is not None:
        down, up = down + replies.carried[0], up + replies.carried[1]
    return replace(state, theta=theta, bytes_down=down, bytes_up=up), []


PER_FEDAVG = replace(
    WITH_COMMON,
    name="per-fedavg",
    title="Per-FedAvg",
    about="Per-FedAvg, first order: a common model that one step on a client's own data makes good for it",
    client=client,
    finish=finish,
)
PER_FEDAVG_HF = replace(
    PER_FEDAVG,
    name="per-fedavg-hf",
    title="Per-FedAvg (HF)",
    about="Per-FedAvg, Hessian-free: a common model that one step on a client's own data makes good for it",
    client=partial(client, hessian_free=True),
)
