"""One-shot clustering: Algorithm 1.

1:  every client trains a simple model of its own            problem.local_solutions
2:  the center machine clusters these models                 problem.cluster
3:  within each cluster one model is trained                 server
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.types import ClusterState
from ifca.methods.averaging import average, initial_state
from ifca.methods.founding import numbered
from ifca.methods.method import Ask, Event, Method, Problem, Round


def start(problem: Problem, restart: int) -> ClusterState:
    """Lines 1 and 2: the clusters are found before the first round, and stay."""
    solutions, down, up = problem.local_solutions(restart)
    labels = checked(problem.cluster(solutions), problem.m, problem.recipe.k)
    theta = problem.draw(restart, 0) if problem.given is None else problem.given
    return replace(initial_state(theta, numbered(labels, problem.keys)), bytes_down=down, bytes_up=up)


def checked(labels: Tensor, m: int, k: int) -> Tensor:
    """S_1, ..., S_k as the clusterer found them, if it did."""
    if labels.shape != (m,) or int(labels.min()) < 0 or int(labels.max()) >= k:
        raise InvalidInput(f"the clusterer must give each of {m} clients a cluster from 0 to {k - 1}")
    return labels


def server(
    problem: Problem, state: ClusterState, now: Round, _ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """Line 3: each cluster is a federation of its own."""
    return average(problem, state, now, apart=True), None


ONE_SHOT = Method(
    name="oneshot",
    title="one-shot",
    about="one-shot: clusters found once, before training",
    start=start,
    server=server,
)
