"""Mini-batch steps of many clients on a GPU: one step of all of them is captured once and replayed.

Launching the few hundred kernels of a step from Python takes longer than running them. The step is core's own
local_step, mapped over the clients (compiled too where that is asked for), or one written by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from ifca.core.client import batch_of, local_step
from ifca.core.types import Data, Params, Task

Step = Callable[..., Params]
"""One step of c clients: parameters [c, ...], their data, step size, rows and perhaps draws [c, batch]."""


def mapped_step(task: Task, *, compiled: bool) -> Step:
    """The local_step of core, mapped over clients."""

    def step(theta: Params, data: Data, gamma: Tensor, rows: Tensor, draws: Tensor | None = None) -> Params:
        return local_step(task, theta, gamma, batch_of(task, data, rows, draws))

    mapped: Step = vmap(step, in_dims=(0, 0, None, 0) if task.augment is None else (0, 0, None, 0, 0))
    return torch.compile(mapped) if compiled else mapped


class GraphedSteps:
    """LocalUpdate of a chunk of clients by replays of one captured step, which may change theta in place."""

    def __init__(self, step: Step, rows: int) -> None:
        """rows: samples of the largest client, so that one capture serves them all."""
        self._rows = rows
        self._captured: dict[tuple[Any, ...], tuple[Any, Params, Data, tuple[Tensor, ...]]] = {}
        self._step = step

    def __call__(
        self, theta: Params, data: Data, steps: Tensor, draws: Tensor | None, gamma: float
    ) -> Params:
        """theta: [c, ...] each client's start; steps, draws: [c, steps, batch], rows of each step.

        A step captured for more clients serves fewer: the others have no rows.
        """
        c, shape = len(data.x), (tuple(data.x.shape[2:]), steps.shape[2])
        plan = [steps] if draws is None else [steps, draws]
        if shape not in self._captured or len(self._captured[shape][2].x) < c:
            self._captured = {shape: self._capture(theta, data, gamma, [part[:, 0] for part in plan])}
        graph, held, samples, (size, *now) = self._captured[shape]
        for name, value in theta.items():
            held[name][:c].copy_(value)
        for mine, given in zip(samples, data, strict=True):
            mine[:c, : given.shape[1]].copy_(given)
        size.fill_(gamma)
        now[0][c:] = -1
        for q in range(steps.shape[1]):
            for mine, given in zip(now, plan, strict=True):
                mine[:c].copy_(given[:, q])
            graph.replay()
        return {name: value[:c].clone() for name, value in held.items()}

    def _capture(
        self, theta: Params, data: Data, gamma: float, plan: list[Tensor]
    ) -> tuple[Any, Params, Data, tuple[Tensor, ...]]:
        """plan: rows of a step [c, batch], and the draws to augment them by where there are any."""
        held = {name: value.clone() for name, value in theta.items()}
        samples = Data(*(part.new_zeros(len(part), self._rows, *part.shape[2:]) for part in data))
        size = torch.full((), gamma, device=data.x.device, dtype=data.weight.dtype)
        inputs = (size, *(part.clone() for part in plan))
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries choose their algorithms before the capture
            for _ in range(3):
                self._step(held, samples, *inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for name, value in self._step(held, samples, *inputs).items():
                held[name].copy_(value)
        return graph, held, samples, inputs
