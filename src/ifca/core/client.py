"""What ONE client does (lines 5 to 12 of Algorithm 2 and LocalUpdate). Engines map it over clients."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.identity import identity, one_hot
from ifca.core.optimisers import PLAIN, Moments, Optimiser, flat, optimiser_of, shaped
from ifca.core.recipe import Recipe
from ifca.core.sampling import Plan, take
from ifca.core.types import Batch, ClientReply, Data, Params, Task, model_count, select


def client_round(
    task: Task, recipe: Recipe, step: float, theta: Params, data: Data, plan: Plan, own: Tensor | None = None
) -> ClientReply:
    """The whole turn of client i: identity, then option I or option II.

    theta: the k models [k, ...]; own: the client's identity where the server sent only that model.
    """
    j, losses = estimate(task, theta, data, plan, own)
    chosen = select(theta, j)
    if recipe.option == "gradient":
        batch = next(iter(batches(1, task, data, plan)))
        return ClientReply(j, losses, gradient(task, chosen, batch))
    steps = batches(recipe.local_steps, task, data, plan)
    return ClientReply(j, losses, local_update(task, chosen, step, steps, optimiser_of(recipe)))


def estimate(task: Task, theta: Params, data: Data, plan: Plan, own: Tensor | None) -> tuple[Tensor, Tensor]:
    """The identity j-hat (line 6), and the losses [k] that decided it; NaN for models not sent."""
    seen = data if plan.identity is None else take(data, plan.identity)
    if own is None:
        losses = cluster_losses(task, theta, seen)
        return identity(losses), losses
    loss = mean_loss(task, select(theta, own), seen)
    return own, torch.where(one_hot(own, model_count(theta)), loss, torch.nan)


def cluster_losses(task: Task, theta: Params, data: Data) -> Tensor:
    """F_i(theta_j) for all j: [k], each on the same clean samples, without regulariser."""
    return torch.stack([mean_loss(task, select(theta, j), data) for j in range(model_count(theta))])


def mean_loss(task: Task, theta: Params, data: Data) -> Tensor:
    """F_i(theta; Z) = 1/|Z| sum over z in Z of f(theta; z). Nothing in Z: zero."""
    return _mean(task.loss(task.output(theta, data.x), data.y), data.weight)


def score(task: Task, theta: Params, data: Data) -> tuple[Tensor, Tensor]:
    """Mean loss and number of right predictions of one model on a client's data (NaN in regression)."""
    output = task.output(theta, data.x)
    loss = _mean(task.loss(output, data.y), data.weight)
    if task.correct is None:
        return loss, torch.full_like(loss, torch.nan)
    return loss, (task.correct(output, data.y) * data.weight).sum()


def savings(task: Task, theta: Params, data: Data, own: int, others: list[int]) -> tuple[int, Tensor, Tensor]:
    """Samples, and over them the sums of f(other; z) - f(own; z) and of its square, for each other: [q].

    Paired: the two losses are of one sample, so what is hard for both models does not count as noise.
    """
    mine = task.loss(task.output(select(theta, own), data.x), data.y).double()
    more = [task.loss(task.output(select(theta, j), data.x), data.y).double() - mine for j in others]
    table = torch.stack(more, 1) if more else mine.new_zeros(len(mine), 0)
    return len(mine), table.sum(0), table.square().sum(0)


def _mean(loss: Tensor, weight: Tensor) -> Tensor:
    if loss.shape != weight.shape:
        raise InvalidInput(
            f"loss: must give one number per sample, {tuple(weight.shape)}, got {tuple(loss.shape)}"
        )
    return (loss * weight).sum() / weight.sum().clamp(min=1)


def gradient(task: Task, theta: Params, data: Data | Batch) -> Params:
    """(Stochastic) gradient of F_i, plus the regulariser's (line 9). No samples: zero."""
    return training_pass(task, theta, data)[0]


def training_pass(task: Task, theta: Params, data: Data | Batch) -> tuple[Params, Params]:
    """The gradient, and the entries of theta that the pass itself changes (Task.training)."""

    def minimised(theta: Params) -> tuple[Tensor, Params]:
        output, passed = (
            (task.output(theta, data.x), {}) if task.training is None else task.training(theta, data)
        )
        return _objective(task, theta, output, data), passed

    result: tuple[Params, Params] = torch.func.grad(minimised, has_aux=True)(theta)
    return result


def objective(task: Task, theta: Params, data: Data) -> Tensor:
    """What training minimises: F_i, or what the task says instead, plus the regulariser. No samples: zero."""
    return _objective(task, theta, task.output(theta, data.x), data)


def _objective(task: Task, theta: Params, output: Tensor, data: Data | Batch) -> Tensor:
    loss = _mean(task.minimised(output, data.y), data.weight)
    return loss if task.penalty is None else loss + task.penalty(theta) * (data.weight.sum() > 0)


def local_update(
    task: Task, theta: Params, step: float, batches: Iterable[Data | Batch], optimiser: Optimiser = PLAIN
) -> Params:
    """LocalUpdate(theta, gamma, tau): theta <- theta - gamma grad F_i(theta), one step per batch."""
    sent, moments = theta, optimiser.begin(theta)
    for batch in batches:
        if optimiser.plain:
            theta = local_step(task, theta, step, batch)
        else:
            theta, moments = optimised_step(task, optimiser, theta, moments, sent, step, batch)
    return theta


def local_step(task: Task, theta: Params, step: float | Tensor, batch: Data | Batch) -> Params:
    """One (stochastic) gradient step of LocalUpdate."""
    g, passed = training_pass(task, theta, batch)
    return {name: value - step * g[name] for name, value in theta.items()} | passed


def optimised_step(
    task: Task,
    optimiser: Optimiser,
    theta: Params,
    moments: Moments,
    sent: Params,
    step: float | Tensor,
    batch: Data | Batch,
) -> tuple[Params, Moments]:
    """The same with momentum, Adam, weight decay or a proximal term. A batch without samples is no step."""
    g, passed = training_pass(task, theta, batch)
    before, there = flat(theta), batch.weight.sum() > 0

    def if_there(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(there, new, old)

    moved, now = optimiser.step(before, flat(g), step, moments, sent)
    after = shaped(if_there(moved, before), theta)
    changed = {name: if_there(value, theta[name]) for name, value in passed.items()}
    return after | changed, Moments(*map(if_there, now, moments))


def change(recipe: Recipe, theta: Params, reply: ClientReply) -> Params:
    """What the client would change: its gradient (option I), or its model minus the one it was sent."""
    if recipe.option == "gradient":
        return reply.update
    return {name: value - theta[name][reply.identity] for name, value in reply.update.items()}


def batch_of(task: Task, data: Data, rows: Tensor | None, draws: Tensor | None) -> Batch:
    """The samples of one gradient step, augmented where the task says so."""
    x, y, weight = data if rows is None else take(data, rows)
    return Batch(x if task.augment is None or draws is None else task.augment(x, draws), y, weight, draws)


def batches(steps: int, task: Task, data: Data, plan: Plan) -> Iterable[Batch]:
    """steps: how many, where the plan names no rows and all data are used."""
    count = steps if plan.steps is None else len(plan.steps)
    for q in range(count):
        rows, draws = (None if part is None else part[q] for part in (plan.steps, plan.draws))
        yield batch_of(task, data, rows, draws)
