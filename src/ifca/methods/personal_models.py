"""What methods with a model per client have in common: local models, some parameters of which are shared.

A client's model may be wider than the one asked for: Ditto's has parameters of its own and, under names that
begin with ".common.", those of a model that all have in common. Shared parameters are averaged over all
participants in every round, the others stay as their client sent them. So a personal method is a client's
turn and a list of what is shared; rounds, engines, checkpoints and reports treat it as local models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from ifca.core.errors import InvalidInput
from ifca.core.ledger import Wire
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, Params, Task
from ifca.methods.averaging import average
from ifca.methods.local_models import LOCAL
from ifca.methods.method import Ask, Event, Problem, Round, sampled

COMMON = ".common."  # no layer or parameter of a torch module has a name that begins with a dot


def with_common(_recipe: Recipe, model: Params) -> Params:
    """A model of the client's own and the common one, which begin alike."""
    return {**model, **{COMMON + name: value.clone() for name, value in model.items()}}


def common_part(theta: Params) -> Params:
    """The common model, by its plain names."""
    return {name.removeprefix(COMMON): value for name, value in theta.items() if name.startswith(COMMON)}


def own_part(theta: Params) -> Params:
    """The client's own model; a plain model is its own."""
    return {name: value for name, value in theta.items() if not name.startswith(COMMON)}


def widely(own: Params, common: Params) -> Params:
    """The inverse of own_part and common_part."""
    return {**own, **{COMMON + name: value for name, value in common.items()}}


def common_names(_recipe: Recipe, names: list[str]) -> frozenset[str]:
    """The common model is shared, the own one is not."""
    return frozenset(name for name in names if name.startswith(COMMON))


def seen_as(part: Callable[[Params], Params]) -> Callable[[Recipe, Task], Task]:
    """A method's task whose outputs are those of a plain model, which part makes of a widened one."""

    def task_of(_recipe: Recipe, task: Task) -> Task:
        penalty, training = task.penalty, task.training
        return replace(
            task,
            output=lambda theta, x: task.output(part(theta), x),
            penalty=None if penalty is None else lambda theta: penalty(part(theta)),
            training=None if training is None else lambda theta, batch: training(part(theta), batch),
            first=None,
        )

    return task_of


def server(
    problem: Problem, state: ClusterState, now: Round, _ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """Shared parameters: the average of all participants. The others: as their client has them."""
    shared = Wire.of(state.theta, state.live, problem.shared).shared
    wire = Wire(shared, 0, 1)
    return average(problem, state, now, apart=True, wire=wire, steps=problem.shared), None


def trains_models(recipe: Recipe, _task: Task) -> None:
    """Gradients alone say nothing of a model that a client keeps."""
    if recipe.option == "gradient":
        raise InvalidInput(
            f'{recipe.algorithm}: clients train models of their own, so option must be "model"'
        )


def steps_plainly(recipe: Recipe, task: Task) -> None:
    """The method says itself how clients step."""
    trains_models(recipe, task)
    if recipe.optimizer != "sgd" or recipe.weight_decay or recipe.proximal:
        raise InvalidInput(
            f"{recipe.algorithm}: its steps are its own, so optimizer, weight_decay and proximal do not apply"
        )


def alike_in_training(recipe: Recipe, task: Task) -> None:
    """Refuse models that behave otherwise in gradient steps, where outputs of several models are mixed."""
    steps_plainly(recipe, task)
    if task.training is not None:
        raise InvalidInput(
            f"{recipe.algorithm}: mixes the outputs of several models and cannot train layers with dropout"
        )


LIKE_LOCAL = replace(LOCAL, takes_part=sampled, server=server, suits=trains_models)
"""To be completed by name, title, about, client and shared."""

WITH_COMMON = replace(
    LIKE_LOCAL, widened=with_common, task=seen_as(own_part), shared=common_names, suits=steps_plainly
)
"""The same where a client has a model of its own, which serves it, and a common one."""


def mixture(share: torch.Tensor, outputs: torch.Tensor, task: Task) -> torch.Tensor:
    """What several models say together. share: [k], sums to 1; outputs: [k, n, ...].

    Classes: the logarithm of the mean of their probabilities. Regression: the mean of their values.
    """
    weight = share.reshape(-1, *[1] * (outputs.dim() - 1))
    if task.correct is None:
        return (weight * outputs).sum(0)
    return torch.logsumexp(outputs.log_softmax(-1) + weight.clamp(min=1e-30).log(), 0)
