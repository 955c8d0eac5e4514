"""MOCHA for linear models: a model per client, and how clients are related, learned with them.

Minimise over W = [w_1 ... w_m] and Omega:  sum over i of F_i(w_i) + lambda/2 tr(W Omega W'). In every round
1. participants take their steps on their own loss                                      client_round
2. the server brings related models together:  W <- W (I + gamma tau lambda Omega)^-1      together
   (of some participants: their models, the others' being as they are)
3. every 10 rounds Omega becomes the inverse of  Sigma = (W'W)^(1/2) / tr (W'W)^(1/2)     related
It begins with Omega = m I: nobody is related.

Source: Smith, Chiang, Sanjabi, Talwalkar 2017. lambda is `mocha_lambda`. Deviations: theirs solves a dual by
coordinate ascent; here the loss is descended and the regulariser's step is exact (its proximal map), with one
local step the proximal gradient method for the same problem. Sigma's eigenvalues are at least 1e-7 of the
largest. The server sees all models. Models must be linear: a distance between networks' weights says little.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.ledger import Wire
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, Params, Task
from ifca.methods.averaging import average
from ifca.methods.local_models import start as begin
from ifca.methods.method import Ask, Event, Problem, Round
from ifca.methods.personal_models import LIKE_LOCAL, trains_models

OMEGA = "omega"  # [m, m]
EVERY = 10  # rounds between two looks at how clients are related
LEAST = 1e-7  # share of the largest eigenvalue that the smallest has


def start(problem: Problem, restart: int) -> ClusterState:
    """Models alike, nobody related."""
    state = begin(problem, restart)
    return replace(state, memory={OMEGA: problem.m * torch.eye(problem.m, dtype=torch.float64)})


def suits(recipe: Recipe, task: Task) -> None:
    """Linear models only, and tau known to the server."""
    trains_models(recipe, task)
    if recipe.local_epochs is not None:
        raise InvalidInput(
            "mocha: the pull of a round is that of so many steps, the same for all clients; set local_steps "
            "instead of local_epochs"
        )
    assert task.module is not None
    layers = {name.rpartition(".")[0] for name, _ in task.module.named_parameters()}
    if len(layers) > 1:
        raise InvalidInput(
            f"mocha: is for linear models (linear, logistic), and this one has {len(layers)} layers"
        )


def server(
    problem: Problem, state: ClusterState, now: Round, _ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """What participants learned, then what they learn of each other."""
    wire = Wire.of(state.theta, state.live, frozenset())
    after = average(problem, state, now, apart=True, wire=replace(wire, k=1), steps=frozenset())
    recipe, omega = problem.recipe, state.memory[OMEGA]
    if after.round % EVERY == 0:
        omega = related(_flat(after.theta))
    pull = recipe.step(state.round) * recipe.local_steps * recipe.mocha_lambda
    theta = _back(together(_flat(after.theta), omega, pull, now.who), after.theta)
    return replace(after, theta=theta, memory={OMEGA: omega}), None


def together(w: Tensor, omega: Tensor, pull: float, who: Tensor) -> Tensor:
    """The proximal map of pull/2 tr(W Omega W') in the models of participants who [p]; the others stay: a
    client that took no step is not pulled either. w: a model per row [m, d].
    """
    there = torch.isin(torch.arange(len(w)), who)
    eye = torch.eye(int(there.sum()), dtype=w.dtype)
    others = pull * omega[there][:, ~there] @ w[~there]
    found = w.clone()
    found[there] = torch.linalg.solve(eye + pull * omega[there][:, there], w[there] - others)
    return found


def related(w: Tensor) -> Tensor:
    """Omega from the models [m, d]."""
    values, vectors = torch.linalg.eigh(w @ w.T)
    roots = values.clamp(min=0).sqrt()
    roots = roots.clamp(min=max(float(roots.max()) * LEAST, 1e-30))
    roots = roots / roots.sum()
    found: Tensor = (vectors / roots) @ vectors.T
    return found


def _flat(theta: Params) -> Tensor:
    return torch.cat([value.flatten(1) for value in theta.values()], 1).double().cpu()


def _back(flat: Tensor, like: Params) -> Params:
    sizes = [value[0].numel() for value in like.values()]
    parts = zip(like.items(), torch.split(flat, sizes, 1), strict=True)
    return {name: part.reshape(value.shape).to(value) for (name, value), part in parts}


MOCHA = replace(
    LIKE_LOCAL,
    name="mocha",
    title="MOCHA",
    about="MOCHA: a linear model per client, and how clients are related, learned together",
    start=start,
    suits=suits,
    server=server,
)
