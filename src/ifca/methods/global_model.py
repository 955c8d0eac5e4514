"""One model for all: federated averaging, which is IFCA with k = 1."""

from __future__ import annotations

import torch

from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState
from ifca.methods.averaging import average, initial_state
from ifca.methods.method import Ask, Event, Method, Problem, Round, widened


def start(problem: Problem, restart: int) -> ClusterState:
    """Everybody is in cluster 0."""
    theta = problem.draw(restart, 0) if problem.given is None else problem.given
    return initial_state(theta, torch.zeros(problem.m, dtype=torch.long))


def server(
    problem: Problem, state: ClusterState, now: Round, _ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """The average of all."""
    return average(problem, state, now, apart=True), None


def joined(_recipe: Recipe, state: ClusterState, new: int) -> ClusterState:
    """Who joins is in cluster 0 too."""
    return widened(state, torch.zeros(new, dtype=torch.long))


GLOBAL = Method(
    name="global",
    title="global",
    about="one model for all clients",
    start=start,
    server=server,
    models=lambda _recipe, _m: 1,
    joined=joined,
    clustered=False,
    private=True,
)
