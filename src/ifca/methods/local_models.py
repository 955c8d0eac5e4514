"""A model per client, trained on its own data alone; nothing is ever sent."""

from __future__ import annotations

import torch
from torch import Tensor

from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState
from ifca.methods.averaging import average, initial_state
from ifca.methods.method import Ask, Event, Method, Problem, Round


def start(problem: Problem, restart: int) -> ClusterState:
    """All local models begin alike; client i has model i."""
    one = problem.draw(restart, 0) if problem.given is None else problem.given
    theta = {name: value.expand(problem.m, *value.shape[1:]).clone() for name, value in one.items()}
    return initial_state(theta, torch.arange(problem.m))


def everybody(_recipe: Recipe, state: ClusterState, _who: Tensor) -> Tensor:
    """Nobody waits for anybody: all take part in every round."""
    return torch.arange(len(state.identity))


def server(
    problem: Problem, state: ClusterState, now: Round, _ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """The average over one client is its own model."""
    return average(problem, state, now, apart=True, sent=False), None


def joined(_recipe: Recipe, _state: ClusterState, _new: int) -> None:
    """Who joins has no model yet, so all begin anew."""
    return


LOCAL = Method(
    name="local",
    title="local",
    about="every client on its own, without the others",
    start=start,
    server=server,
    models=lambda _recipe, m: m,
    takes_part=everybody,
    joined=joined,
    clustered=False,
    personal=True,
    alone=True,
    one_start=True,
)
