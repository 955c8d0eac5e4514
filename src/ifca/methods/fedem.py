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

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.client import batches, estimate
from ifca.core.recipe import Recipe
from ifca.core.sampling import Plan
from ifca.core.types import Batch, ClientReply, ClusterState, Data, Params, Task, select
from ifca.methods.local_models import start as begin
from ifca.methods.method import Client, Problem
from ifca.methods.personal_models import LIKE_LOCAL, alike_in_training, mixture

PI = ".pi"  # [k] a client's shares
LABELS = ".labels"  # [k, c] of FedRC (fedrc.py): the classes of each model's samples
BESIDE = (PI, LABELS)  # what stands beside the k models
Posterior = Callable[[Task, Params, Data | Batch], Tensor]
"""task, a client's parameters as they were sent, samples -> q [n, k]: which of the k laws made each."""


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
        if name not in BESIDE:
            theta[name] = value.clone()
    for j in range(1, problem.recipe.k):
        drawn = problem.draw(restart, j)
        for name, value in drawn.items():
            if name not in BESIDE:
                theta[name][:, j] = value[:, 0]
    return replace(state, theta=theta)


def components(theta: Params) -> Params:
    """The k models of a client [k, ...]."""
    return {name: value for name, value in theta.items() if name not in BESIDE}


def task_of(_recipe: Recipe, task: Task) -> Task:
    """The mixture's outputs; a plain model's are its own."""

    def output(theta: Params, x: Tensor) -> Tensor:
        if PI not in theta:
            return task.output(theta, x)
        return mixture(theta[PI], torch.stack(outputs_of(task, theta, x)), task)

    return replace(task, output=output, first=None)


def outputs_of(task: Task, theta: Params, x: Tensor) -> list[Tensor]:
    """What each of the k models says: k times [n, ...]."""
    return [task.output(select(components(theta), j), x) for j in range(len(theta[PI]))]


def losses_of(task: Task, outputs: list[Tensor], y: Tensor) -> Tensor:
    """f(theta_j; z_i): [n, k]. Of a regression that of standardised targets, whatever their unit is."""
    loss = task.minimised if task.correct is None else task.loss
    return torch.stack([loss(output, y) for output in outputs], 1)


def shares(task: Task, theta: Params, data: Data | Batch) -> Tensor:
    """E step: q [n, k]."""
    losses = losses_of(task, outputs_of(task, theta, data.x), data.y)
    return torch.softmax(theta[PI].clamp(min=1e-30).log() - losses, 1)


def turn(posterior: Posterior, told: Callable[[Params, Tensor, Data], Params]) -> Client:
    """E step, shares, M step. told: parameters, q, samples -> what is sent beside models and shares."""

    def client(
        task: Task, recipe: Recipe, step: float, theta: Params, data: Data, plan: Plan, own: Tensor
    ) -> ClientReply:
        j, losses = estimate(task, theta, data, plan, own)
        mine = select(theta, j)
        now = components(mine)
        for batch in batches(recipe.local_steps, task, data, plan):
            q = posterior(task, mine, batch) * batch.weight[:, None]
            slope = torch.func.grad(expected)(now, task, batch, q)
            now = {n: v - step * slope[n] for n, v in now.items()}
        q = posterior(task, mine, data) * data.weight[:, None]
        share = q.sum(0) / data.weight.sum().clamp(min=1)
        return ClientReply(j, losses, {**now, PI: share, **told(mine, q, data)})

    return client


def expected(models: Params, task: Task, batch: Batch, q: Tensor) -> Tensor:
    """1/n sum over i and j of q_ij f(theta_j; z_i), and the regulariser of each model."""
    total, value = batch.weight.sum(), torch.zeros((), dtype=q.dtype, device=q.device)
    for j in range(q.shape[1]):
        one = select(models, j)
        loss = task.minimised(task.output(one, batch.x), batch.y)
        value = value + (loss * q[:, j]).sum() / total.clamp(min=1)
        if task.penalty is not None:
            value = value + task.penalty(one) * (total > 0)
    return value


FEDEM = replace(
    LIKE_LOCAL,
    name="fedem",
    title="FedEM",
    about="FedEM: k models for all, of which each client is a mixture in shares of its own",
    start=start,
    client=turn(shares, lambda _theta, _q, _data: {}),
    widened=widened,
    task=task_of,
    suits=alike_in_training,
    shared=lambda _recipe, names: frozenset(name for name in names if name != PI),
)
