"""A method of your own: IFCA whose clients stay near the model they were sent, and whose server has momentum.

Clients minimise F_i(theta) + mu/2 ||theta - theta_j||^2 (the proximal term of FedProx). The server moves each
cluster's model by a running mean of its changes (FedAvgM). One file that registers a record, and it runs on
every engine: python examples/own_method.py
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ifca import IFCA, rotated_digits
from ifca.core.client import batches, estimate, local_update
from ifca.core.types import ClientReply, ClusterState, Params, Task, select
from ifca.methods import Ask, Event, Problem, Round, average, method_of, register

MU, MOMENTUM = 0.1, 0.5
PLAIN = method_of("ifca-plain")


def near(task: Task, centre: Params) -> Task:
    """The same task with the proximal term in its local objective."""

    def pull(theta: Params) -> torch.Tensor:
        terms = [(value - centre[name]).square().sum() for name, value in theta.items()]
        return MU / 2 * torch.stack(terms).sum()

    return replace(task, penalty=pull)


def client(
    task: Task, recipe: Any, step: float, theta: Params, data: Any, plan: Any, own: Any = None
) -> ClientReply:
    """The turn of ONE client: its identity as in the paper, then steps that stay near its model."""
    j, losses = estimate(task, theta, data, plan, own)
    sent = select(theta, j)
    steps = batches(recipe.local_steps, task, data, plan)
    return ClientReply(j, losses, local_update(near(task, sent), sent, step, steps))


def start(problem: Problem, restart: int) -> ClusterState:
    """As in the paper; the method's own memory is a velocity for each model."""
    state = PLAIN.start(problem, restart)
    return replace(state, memory={name: torch.zeros_like(value) for name, value in state.theta.items()})


def server(
    problem: Problem, state: ClusterState, now: Round, _ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """The averages of the paper, taken as directions."""
    after = average(problem, state, now)
    change = {name: value - state.theta[name] for name, value in after.theta.items()}
    velocity = {name: MOMENTUM * state.memory[name] + change[name] for name in change}
    theta = {name: value + velocity[name] for name, value in state.theta.items()}
    return replace(after, theta=theta, memory=velocity), None


IFCA_PROX = register(
    replace(
        PLAIN,
        name="ifca-prox",
        title="proximal IFCA",
        about="plain IFCA with a proximal term and server momentum",
        start=start,
        client=client,
        server=server,
    )
)

if __name__ == "__main__":
    federation = rotated_digits()
    for engine in ("loop", "vectorised"):
        model = IFCA(4, algorithm="ifca-prox", rounds=10, engine=engine).fit(federation)
        print(engine, "test accuracy:", model.history_[-1]["test_accuracy"])
