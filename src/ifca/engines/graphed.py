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

from ifca.core.client import local_step
from ifca.core.sampling import take
from ifca.core.types import Data, Params, Task

Step = Callable[[Params, Data, Tensor, Tensor], Params]
"""One step of c clients: parameters [c, ...], their data, rows [c, batch], step size -> new parameters."""


def mapped_step(task: Task, *, compiled: bool) -> Step:
    """The local_step of core, mapped over clients."""

    def step(theta: Params, data: Data, rows: Tensor, gamma: Tensor) -> Params:
        return local_step(task, theta, gamma, take(data, rows))

    mapped: Step = vmap(step, in_dims=(0, 0, 0, None))
    return torch.compile(mapped) if compiled else mapped


class GraphedSteps:
    """LocalUpdate of a chunk of clients by replays of one captured step, which may change theta in place."""

    def __init__(self, step: Step) -> None:
        self._captured: dict[tuple[Any, ...], tuple[Any, Params, Data, Tensor, Tensor]] = {}
        self._step = step

    def __call__(self, theta: Params, data: Data, steps: Tensor, gamma: float) -> Params:
        """theta: [c, ...] each client's start; steps: [c, steps, batch] rows of each step."""
        shape = (tuple(data.x.shape), tuple(steps.shape[::2]))
        if shape not in self._captured:
            self._captured = {shape: self._capture(theta, data, steps[:, 0], gamma)}
        graph, held, samples, rows, size = self._captured[shape]
        for name, value in theta.items():
            held[name].copy_(value)
        for mine, given in zip(samples, data, strict=True):
            mine.copy_(given)
        size.fill_(gamma)
        for q in range(steps.shape[1]):
            rows.copy_(steps[:, q])
            graph.replay()
        return {name: value.clone() for name, value in held.items()}

    def _capture(
        self, theta: Params, data: Data, rows: Tensor, gamma: float
    ) -> tuple[Any, Params, Data, Tensor, Tensor]:
        held = {name: value.clone() for name, value in theta.items()}
        samples, index = Data(*(part.clone() for part in data)), rows.clone()
        size = torch.full((), gamma, device=rows.device, dtype=data.weight.dtype)
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries choose their algorithms before the capture
            for _ in range(3):
                self._step(held, samples, index, size)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for name, value in self._step(held, samples, index, size).items():
                held[name].copy_(value)
        return graph, held, samples, index, size
