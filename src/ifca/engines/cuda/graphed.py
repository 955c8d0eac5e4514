"""Mini-batch steps on a GPU: one step is captured once and replayed.

Launching the few hundred kernels of a step from Python takes longer than running them. The step is core's
own, mapped over the clients (compiled too where that is asked for), or one written by hand. Convolutions of
many clients at once, each with weights of its own, are slow in cuDNN, so clients may also step one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from ifca.core.client import batch_of, local_step, optimised_step
from ifca.core.optimisers import Moments, Optimiser
from ifca.core.types import Data, Params, Task
from ifca.engines.cuda.streams import Streams, copy, each, evened, some_of


class Steps(NamedTuple):
    """What a step changes and reads of c clients: [c, ...]."""

    theta: Params
    moments: Moments  # of momentum and Adam
    sent: Params  # the model that the round began with; empty: steps are plain


Step = Callable[..., Steps]
"""One step of c clients: where they are, their data, step size, rows and perhaps draws [c, batch]."""


def mapped_step(task: Task, optimiser: Optimiser, *, compiled: bool) -> Step:
    """Core's step, mapped over clients."""

    def step(now: Steps, data: Data, gamma: Tensor, rows: Tensor, draws: Tensor | None = None) -> Steps:
        batch = batch_of(task, data, rows, draws)
        if optimiser.plain:
            return now._replace(theta=local_step(task, now.theta, gamma, batch))
        theta, moments = optimised_step(task, optimiser, now.theta, now.moments, now.sent, gamma, batch)
        return now._replace(theta=theta, moments=moments)

    mapped: Step = vmap(step, in_dims=(0, 0, None, 0) if not task.draws else (0, 0, None, 0, 0))
    return torch.compile(mapped) if compiled else mapped


def begun(theta: Params, optimiser: Optimiser) -> Steps:
    """Before the first step of clients that start at theta [c, ...]."""
    c, one = len(next(iter(theta.values()))), optimiser.begin({name: v[0] for name, v in theta.items()})
    moments: Moments = each(lambda part: part.repeat(c, *[1] * part.dim()), one)
    return Steps(theta, moments, {} if optimiser.plain else theta)


class Captured(NamedTuple):
    """What captured steps change, what they read, and the graphs of a step of the first so many clients."""

    now: Steps
    data: Data
    size: Tensor  # [] gamma
    plan: tuple[Tensor, ...]
    graphs: dict[int, Any]


class GraphedSteps:
    """LocalUpdate of a chunk of clients by replays of a captured step, which may change theta in place.

    A step is that of the clients up to the last one that has samples left: where the larger come first, those
    of few samples cost few steps. It is captured for a few numbers of clients.
    """

    def __init__(self, step: Step, rows: int, *, alone: bool = False) -> None:
        """rows: samples of the largest client, so that one capture serves them all; alone: one by one."""
        self._rows, self._alone, self._step = rows, alone, step
        self._streams = Streams()
        self._captured: dict[tuple[Any, ...], Captured] = {}

    def __call__(self, begin: Steps, data: Data, steps: Tensor, draws: Tensor | None, gamma: float) -> Params:
        """steps, draws: [c, steps, batch], rows of each step, in main memory. The models after the last."""
        c, left = len(data.x), (steps >= 0).any(2)
        plan = [part.to(data.x.device) for part in ([steps] if draws is None else [steps, draws])]
        at_once = 1 if self._alone else c
        result = {name: torch.empty_like(value) for name, value in begin.theta.items()}
        for part, stream, number in self._streams.parts(c, at_once):
            mine: tuple[Steps, Data, list[Tensor]] = some_of((begin, data, plan), part)
            with stream:
                found = self._taken(mine, first_with(left[part]), gamma, number)
                copy(some_of(result, part), {name: value[:at_once] for name, value in found.items()})
        return result

    def _taken(
        self, given: tuple[Steps, Data, list[Tensor]], count: list[int], gamma: float, number: int
    ) -> Params:
        """All steps of some clients, each of the first count[q]. What is captured for more serves fewer."""
        begin, data, plan = given
        c, shape = len(data.x), (number, tuple(data.x.shape[2:]), plan[0].shape[2])
        if shape not in self._captured or len(self._captured[shape].data.x) < c:
            self._captured[shape] = self._made(begin, data, gamma, [part[:, 0] for part in plan])
        held = self._captured[shape]
        count = [evened(some, len(held.data.x)) if some else 0 for some in count]
        self._capture(held, {*count} - {0})
        copy(some_of(held.now, slice(c)), begin)
        for mine, theirs in zip(held.data, data, strict=True):
            mine[:c, : theirs.shape[1]].copy_(theirs)
        held.size.fill_(gamma)
        held.plan[0][c:] = -1
        for q, some in enumerate(count):
            if some:
                for part, planned in zip(held.plan, plan, strict=True):
                    part[:c].copy_(planned[:, q])
                held.graphs[some].replay()
        return held.now.theta

    def _made(self, begin: Steps, data: Data, gamma: float, plan: list[Tensor]) -> Captured:
        """Room for so many clients. plan: rows of a step [c, batch], and perhaps draws to augment them by."""
        now: Steps = each(torch.clone, begin)
        samples = Data(*(part.new_zeros(len(part), self._rows, *part.shape[2:]) for part in data))
        size = torch.full((), gamma, device=data.x.device, dtype=data.weight.dtype)
        return Captured(now, samples, size, tuple(part.clone() for part in plan), {})

    def _capture(self, held: Captured, counts: set[int]) -> None:
        """Steps of the first so many clients, where they are not captured yet."""
        pool = next((graph.pool() for graph in held.graphs.values()), None)
        for count in sorted(counts - set(held.graphs), reverse=True):
            now, samples, plan = some_of((held.now, held.data, held.plan), slice(count))

            def stepped(now: Steps = now, samples: Data = samples, plan: tuple[Tensor, ...] = plan) -> None:
                after = self._step(now, samples, held.size, *plan)
                copy((now.theta, now.moments), (after.theta, after.moments))

            held.graphs[count] = self._streams.captured(stepped, pool)
            pool = held.graphs[count].pool()


def first_with(left: Tensor) -> list[int]:
    """How many clients there are up to the last one that has samples left: [c, steps] -> [steps]."""
    number = torch.arange(1, len(left) + 1)[:, None]
    found: list[int] = (number * left).amax(0).tolist()
    return found
