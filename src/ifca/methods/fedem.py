"""FedEM: k models for all; a client is a mixture of the k laws, in shares that it learns. Soft membership.

In every round a participant
1. E step:  q_ij ~ pi_j exp(-f(theta_j; z_i)) for each of its samples z_i, over the k models as they were sent
2. pi_j <- mean over i of q_ij
3. M step:  each of the k models takes the round's steps on  1/n sum over i of q_ij f(theta_j; z_i)
4. sends all k models; pi stays. The server averages each.
A client is served by the mixture  sum over j of pi_j p_j(x)  (a regression: of values).

Source: Marfoq et al. 2021. k is the number of models. Deviation: averages weigh clients as `aggregation`
says.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.client import batches, estimate
from ifca.core.recipe import Recipe
from ifca.core.sampling import Plan
from ifca.core.types import Batch, ClientReply, ClusterState, Data, Params, Task, select
from ifca.methods.local_models import start as begin
from ifca.methods.method import Problem
from ifca.methods.personal_models import LIKE_LOCAL, alike_in_training, mixture

PI = "pi"  # [k] a client's shares


def widened(recipe: Recipe, model: Params) -> Params:
    """K models, which start draws apart, and equal shares."""
    like = next(iter(model.values()))
    stacked = {name: torch.stack([value] * recipe.k) for name, value in model.items()}
    return {**stacked, PI: torch.full((recipe.k,), 1 / recipe.k, dtype=like.dtype, device=like.device)}


def start(problem: Problem, restart: int) -> ClusterState:
    """The k models must differ: model j is the j-th draw of the seed."""
    state = begin(problem, restart)
    if problem.given is not None:
        return state
    theta = dict(state.theta)
    for name, value in theta.items():
        if name != PI:
            theta[name] = value.clone()
    for j in range(1, problem.recipe.k):
        drawn = problem.draw(restart, j)
        for name, value in drawn.items():
            if name != PI:
                theta[name][:, j] = value[:, 0]
    return replace(state, theta=theta)


def components(theta: Params) -> Params:
    """The k models of a client [k, ...]."""
    return {name: value for name, value in theta.items() if name != PI}


def task_of(_recipe: Recipe, task: Task) -> Task:
    """The mixture's outputs; a plain model's are its own."""

    def output(theta: Params, x: Tensor) -> Tensor:
        if PI not in theta:
            return task.output(theta, x)
        each = [task.output(select(components(theta), j), x) for j in range(len(theta[PI]))]
        return mixture(theta[PI], torch.stack(each), task)

    return replace(task, output=output, first=None)


def shares(task: Task, theta: Params, pi: Tensor, data: Data | Batch) -> Tensor:
    """E step: q [n, k]. theta: the k models as they were sent."""
    k = len(pi)
    loss = torch.stack([task.loss(task.output(select(theta, j), data.x), data.y) for j in range(k)], 1)
    return torch.softmax(pi.clamp(min=1e-30).log() - loss, 1)


def client(
    task: Task, recipe: Recipe, step: float, theta: Params, data: Data, plan: Plan, own: Tensor
) -> ClientReply:
    """E step, shares, M step."""
    j, losses = estimate(task, theta, data, plan, own)
    mine = select(theta, j)
    sent, pi = components(mine), mine[PI]
    q = shares(task, sent, pi, data) * data.weight[:, None]
    now = sent
    for batch in batches(recipe.local_steps, task, data, plan):
        weight = shares(task, sent, pi, batch) * batch.weight[:, None]

        def objective(models: Params, batch: Batch = batch, weight: Tensor = weight) -> Tensor:
            total = batch.weight.sum().clamp(min=1)
            value = torch.zeros((), dtype=weight.dtype, device=weight.device)
            for at in range(len(pi)):
                one = select(models, at)
                value = (
                    value + (task.minimised(task.output(one, batch.x), batch.y) * weight[:, at]).sum() / total
                )
                if task.penalty is not None:
                    value = value + task.penalty(one) * (batch.weight.sum() > 0)
            return value

        slope = torch.func.grad(objective)(now)
        now = {n: v - step * slope[n] for n, v in now.items()}
    share = q.sum(0) / data.weight.sum().clamp(min=1)
    return ClientReply(j, losses, {**now, PI: share})


FEDEM = replace(
    LIKE_LOCAL,
    name="fedem",
    title="FedEM",
    about="FedEM: k models for all, of which each client is a mixture in shares of its own",
    start=start,
    client=client,
    widened=widened,
    task=task_of,
    suits=alike_in_training,
    shared=lambda _recipe, names: frozenset(name for name in names if name != PI),
)
