"""IFCA as it is in the paper: Algorithm 2. The example to copy for a method of your own.

1:  theta_j^(0), j in [k]                                    start
3:  broadcast the k models                                   sends
4:  M_t, a random subset of the clients                      core/sampling.py
5-12: identity, then option I or option II                   client: client_round of core/client.py
13-15: averages of gradients (option I) or models (II)       server: average of averaging.py
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.identity import identity, known_identity
from ifca.core.initial import is_balanced
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.sampling import participants
from ifca.core.types import ClusterState
from ifca.methods import farthest
from ifca.methods.averaging import average, initial_state
from ifca.methods.dealt_start import is_dealt, with_dealt
from ifca.methods.method import Ask, Event, Method, Problem, Round
from ifca.methods.one_shot import start as one_shot

REDRAWS = 1000


def start(problem: Problem, restart: int) -> ClusterState:
    """K different models; nobody's identity is known."""
    theta = problem.draw(restart, 0) if problem.given is None else problem.given
    state = initial_state(theta, torch.full((problem.m,), -1))
    if problem.recipe.initial == "farthest":
        return farthest.one_model(state) if problem.given is None else state
    if is_dealt(problem.recipe, state):
        return with_dealt(problem, state, restart)
    if problem.recipe.initial == "oneshot":
        return one_shot(problem, restart)
    return balanced(problem, state, restart) if problem.recipe.initial == "balanced" else state


def balanced(problem: Problem, first: ClusterState, restart: int) -> ClusterState:
    """K models are drawn again until each is chosen by a good share of the first round's clients (D9)."""
    if problem.given is not None:
        return first
    if problem.judge is None:
        raise InvalidInput('initial = "balanced" is for simulations: no real federation is asked 1000 times')
    who = participants(problem.recipe, 0, problem.keys)
    for redraw in range(REDRAWS):
        theta = problem.draw(restart, redraw)
        if is_balanced(identity(problem.judge(theta, who)), problem.models):
            return replace(first, theta=theta)
    draws = f"{REDRAWS} draws of {problem.models} models"
    raise InvalidInput(f'initial = "balanced": none of {draws} is balanced')


def sends(recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """All models; in the first round one, where the start gave each client its own or is not done."""
    if farthest.is_due(recipe, state):
        return torch.zeros_like(who)
    if recipe.initial in ("oneshot", "dealt") and state.round == 0:
        return state.identity[who]
    return known_identity(recipe, state, who)


def needs(recipe: Recipe, state: ClusterState) -> Needs:
    """The sums; single models where some of them become the k."""
    return Needs(updates=farthest.is_due(recipe, state))


def server(
    problem: Problem, state: ClusterState, now: Round, ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """The averages by cluster."""
    if farthest.is_due(problem.recipe, state):
        return farthest.founded(problem, state, now, ask), None
    return average(problem, state, now), None


def choose(_state: ClusterState, losses: Tensor) -> Tensor:
    """A client is served by the model with the lowest loss on its training data."""
    return identity(losses)


IFCA_PLAIN = Method(
    name="ifca-plain",
    title="plain IFCA",
    about="plain IFCA: one model per cluster, as in the paper",
    start=start,
    sends=sends,
    needs=needs,
    server=server,
    serves=choose,
    chooses=True,
    private=True,
)
