"""Plain IFCA with one defect of a public version switched on: a test double for each defect.

A double is plain IFCA (methods/ifca_plain.py) with another start, server or choice; all else is the same, so
that what differs in a table is the defect's. No line of the public files is in here. docs/done-right.md says
which file does what.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ifca.core.identity import identity
from ifca.core.random import generator, shuffled
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, Data, Params, Task, select
from ifca.methods import Method
from ifca.methods.averaging import average
from ifca.methods.ifca_plain import IFCA_PLAIN
from ifca.methods.ifca_plain import server as plain_server
from ifca.methods.ifca_plain import start as plain_start
from ifca.methods.method import Ask, Event, Problem, Round, send_assigned, serve_assigned
from ifca.training import Job

Next = tuple[ClusterState, list[Event] | None]
Rule = Callable[[Job, Params, int], Tensor]
"""job, models, round -> a number for each client and model [m, k]; a client takes the lowest."""
FIRST = "first"  # memory: each client's cluster in round 0
BATCH = 10  # samples of a mini-batch, where a defect is one of mini-batches


def equal_start(problem: Problem, restart: int) -> ClusterState:
    """K copies of one model."""
    state = plain_start(problem, restart)
    return replace(state, theta=select(state.theta, torch.zeros(problem.models, dtype=torch.long)))


def zeroing_server(problem: Problem, state: ClusterState, now: Round, ask: Ask) -> Next:
    """A model that no participant chose becomes zero."""
    after, _ = plain_server(problem, state, now, ask)
    zero = {name: torch.zeros_like(value) for name, value in state.theta.items()}
    return replace(after, theta=_where_empty(now, zero, after.theta)), None


def remembering_start(problem: Problem, restart: int) -> ClusterState:
    """As plain IFCA, and the initial models are kept."""
    state = plain_start(problem, restart)
    return replace(state, memory=dict(state.theta))


def resetting_server(problem: Problem, state: ClusterState, now: Round, ask: Ask) -> Next:
    """A model that no participant chose goes back to its initial weights."""
    after, _ = plain_server(problem, state, now, ask)
    return replace(after, theta=_where_empty(now, state.memory, after.theta)), None


def _where_empty(now: Round, other: Params, theta: Params) -> Params:
    """Other models in the place of those that nobody chose in the round."""
    empty = now.replies.total.weight == 0  # [k]
    return {
        name: torch.where(empty.reshape(-1, *[1] * (value.dim() - 1)), other[name], value)
        for name, value in theta.items()
    }


def dividing_server(problem: Problem, state: ClusterState, now: Round, _ask: Ask) -> Next:
    """The sum of a cluster's models is divided by all participants, not by the cluster's."""
    total = now.replies.total
    weight = torch.where(total.weight > 0, total.weight.sum(), total.weight)  # an empty one keeps its model
    replies = now.replies._replace(total=replace(total, weight=weight))
    return average(problem, state, now._replace(replies=replies)), None


def dealt_start(problem: Problem, restart: int) -> ClusterState:
    """Clients are dealt to the models at random for round 0, each model to at least one."""
    state, k = plain_start(problem, restart), problem.models
    draw = generator(problem.recipe.seed, "dealt", restart)
    places = torch.cat([torch.arange(k), torch.randint(k, (problem.m - k,), generator=draw)])
    first = places[torch.randperm(problem.m, generator=draw)]
    return replace(state, identity=first, memory={FIRST: first})


def sends_dealt_once(_recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """In round 0 the model that a client was dealt; then all."""
    return state.identity[who] if state.round == 0 else torch.full_like(who, -1)


def chosen_by(rule: Rule, job: Job, base: Method) -> Method:
    """Clients are in the cluster that a rule says, in every round and in the end."""

    def chosen(state: ClusterState) -> ClusterState:
        return replace(state, identity=identity(rule(job, state.theta, state.round)))

    def start(problem: Problem, restart: int) -> ClusterState:
        return chosen(base.start(problem, restart))

    def server(problem: Problem, state: ClusterState, now: Round, ask: Ask) -> Next:
        return chosen(base.server(problem, state, now, ask)[0]), None

    return replace(
        base,
        start=start,
        server=server,
        sends=send_assigned,
        serves=serve_assigned,
        chooses=False,
    )


def loss_on_tests(job: Job, theta: Params, _t: int) -> Tensor:
    """The mean loss on the client's test samples."""
    return torch.stack([_losses(job.task, theta, data).mean(1) for data in _tests(job)])


def accuracy_on_tests(job: Job, theta: Params, _t: int) -> Tensor:
    """Minus the accuracy on the client's test samples."""
    return torch.stack([-_correct(job.task, theta, data).mean(1) for data in _tests(job)])


def batch_accuracy(job: Job, theta: Params, t: int) -> Tensor:
    """Minus the accuracy on one mini-batch of the client's training samples, another one in every round."""
    rows = _shuffled(job, "one-batch", t)
    found = []
    for i, order in enumerate(rows):
        data = job.federation.train.one(i, job.device, job.dtype)
        batch = Data(*(part[order[:BATCH]] for part in data))
        found.append(-_correct(job.task, theta, batch).mean(1))
    return torch.stack(found)


def shuffled_loss(job: Job, theta: Params, t: int) -> Tensor:
    """The mean loss on the client's training samples, added up in another order for every model."""
    k = len(next(iter(theta.values())))
    orders = [_shuffled(job, "loader", t, j) for j in range(k)]
    found = []
    for i in range(len(job.federation.train)):
        losses = _losses(job.task, theta, job.federation.train.one(i, job.device, job.dtype))  # [k, n]
        sums = [_summed(losses[j][orders[j][i]]) for j in range(k)]
        found.append(torch.stack(sums) / losses.shape[1])
    return torch.stack(found)


def _summed(losses: Tensor) -> Tensor:
    """Batch by batch, as a loop over a loader does."""
    total = losses.new_zeros(())
    for first in range(0, len(losses), BATCH):
        batch = losses[first : first + BATCH]
        total = total + batch.mean() * len(batch)
    return total


def _tests(job: Job) -> list[Data]:
    """The test samples of each training client."""
    tests, owner = job.federation.test, job.federation.test_owner.tolist()
    assert tests is not None
    return [tests.one(owner.index(i), job.device, job.dtype) for i in range(len(job.federation.train))]


def _shuffled(job: Job, purpose: str, *coordinates: int) -> list[Tensor]:
    """An order of each training client's samples."""
    sizes = job.federation.train.sizes
    order = shuffled(job.recipe.seed, purpose, sizes, *coordinates, job.federation.train.keys)
    return [torch.from_numpy(row[:size]) for row, size in zip(order, sizes, strict=True)]


def _outputs(task: Task, theta: Params, data: Data) -> Tensor:
    return torch.func.vmap(lambda one: task.output(one, data.x))(theta)  # [k, n, ...]


def _losses(task: Task, theta: Params, data: Data) -> Tensor:
    return torch.stack([task.loss(output, data.y) for output in _outputs(task, theta, data)])  # [k, n]


def _correct(task: Task, theta: Params, data: Data) -> Tensor:
    assert task.correct is not None
    outputs = _outputs(task, theta, data)
    return torch.stack([task.correct(output, data.y).double() for output in outputs])  # [k, n]


@dataclass(frozen=True)
class Double:
    """A defect, and plain IFCA with it."""

    what: str
    """What it does, in a line."""
    seen_in: str
    make: Callable[[Job], Method]
    """The method for a job of plain IFCA; some defects need its test samples."""


def _fixed(**changes: object) -> Callable[[Job], Method]:
    return lambda _job: replace(IFCA_PLAIN, **changes)  # type: ignore[arg-type]


EQUAL = replace(IFCA_PLAIN, start=equal_start)
DOUBLES = {
    "equal": Double("k copies of one initial model", "fl-sim", _fixed(start=equal_start)),
    "equal-shuffled": Double(
        "k copies; losses summed in shuffled order",
        "FedFew",
        lambda job: chosen_by(shuffled_loss, job, EQUAL),
    ),
    "zeroed": Double("an empty cluster's model becomes zero", "FedRC, FLUX", _fixed(server=zeroing_server)),
    "reset": Double(
        "an empty cluster gets its initial model back",
        "inflorescence",
        _fixed(start=remembering_start, server=resetting_server),
    ),
    "test-loss": Double(
        "identity by loss on test data",
        "inflorescence",
        lambda job: chosen_by(loss_on_tests, job, IFCA_PLAIN),
    ),
    "test-accuracy": Double(
        "identity by accuracy on test data",
        "PACFL",
        lambda job: chosen_by(accuracy_on_tests, job, IFCA_PLAIN),
    ),
    "batch-accuracy": Double(
        "identity by accuracy on one mini-batch",
        "CFL-GP",
        lambda job: chosen_by(batch_accuracy, job, IFCA_PLAIN),
    ),
    "first-labels": Double(
        "clients dealt at random in round 0; those labels reported",
        "CLoVE's released metrics of IFCA",
        _fixed(start=dealt_start, sends=sends_dealt_once),
    ),
    "once": Double(
        "identity chosen once, never again",
        "none of these; a slip",
        _fixed(sends=send_assigned, serves=serve_assigned),
    ),
    "divided": Double(
        "a cluster's sum divided by all participants", "none of these; a slip", _fixed(server=dividing_server)
    ),
}
"""By name, in the order of the table."""
