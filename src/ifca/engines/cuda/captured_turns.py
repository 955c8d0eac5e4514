"""Whole turns on a GPU: a turn is captured once and replayed, for whatever a method's client does in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ifca.core.sampling import Plan
from ifca.core.types import ClientReply, Data, Params
from ifca.engines.cuda.streams import Streams, copy, each, some_of

Given = tuple[Data, Plan, Tensor | None]
"""Data and plans of c clients [c, ...], and the one model that each is sent; None: all."""
Turns = Callable[[Params, Data, Plan, Tensor | None, Tensor], ClientReply]
"""Models, what c clients are given, step size []: their replies [c, ...]."""
KEPT = 64  # captures


class Captured(NamedTuple):
    """A captured turn, what it reads and what it writes."""

    graph: Any
    given: Given
    reply: ClientReply


class CapturedTurns:
    """Replays of captured turns; all of them read models and step size from one place."""

    def __init__(self, turns: Turns, *, alone: bool) -> None:
        """alone: clients take their turns one by one, on several streams."""
        self._turns, self._alone, self._streams = turns, alone, Streams()
        self._captured: dict[tuple[Any, ...], Captured] = {}
        self._theta: Params = {}
        self._step: Tensor | None = None

    def __call__(self, theta: Params, data: Data, plan: Plan, own: Tensor | None, step: float) -> ClientReply:
        """The turns of c clients."""
        self._hold(theta, step)
        count, result = len(data.x), None
        for part, stream, number in self._streams.parts(count, 1 if self._alone else count):
            given: Given = some_of((data, plan, own), part)
            with stream:
                captured = self._capture_of(given, number)
                copy(captured.given, given)
                captured.graph.replay()
                result = _room(captured.reply, count) if result is None else result
                copy(some_of(result, part), captured.reply)
        assert result is not None
        return result

    def _hold(self, theta: Params, step: float) -> None:
        """Put the models where captured turns read them; models of another shape need other captures."""
        shapes, like = {name: value.shape for name, value in theta.items()}, next(iter(theta.values()))
        if shapes != {name: value.shape for name, value in self._theta.items()}:
            torch.cuda.synchronize()
            self._captured.clear()
            self._theta = {name: torch.empty_like(value) for name, value in theta.items()}
            self._step = torch.empty((), device=like.device, dtype=like.dtype)
        copy(self._theta, theta)
        assert self._step is not None
        self._step.fill_(step)

    def _capture_of(self, given: Given, number: int) -> Captured:
        """The captured turn for inputs of these shapes; number: of the stream."""
        data, plan, own = given
        key = (number, *(None if part is None else part.shape for part in (*data, *plan, own)))
        if key not in self._captured:
            if len(self._captured) >= KEPT:
                torch.cuda.synchronize()
                self._captured.pop(next(iter(self._captured)))
            self._captured[key] = self._capture(given)
        return self._captured[key]

    def _capture(self, given: Given) -> Captured:
        step = self._step
        assert step is not None
        held: Given = each(torch.clone, given)
        reply = self._turns(self._theta, *held, step)
        graph = self._streams.captured(lambda: copy(reply, self._turns(self._theta, *held, step)))
        return Captured(graph, held, reply)


def _room(reply: ClientReply, count: int) -> ClientReply:
    """For the replies of so many clients."""
    result: ClientReply = each(lambda part: part.new_empty(count, *part.shape[1:]), reply)
    return result


def widened(data: Data, size: int) -> Data:
    """The same clients [c, n, ...] with room for so many samples; those beyond their own weigh nothing."""
    more = size - data.x.shape[1]
    return Data(*(pad(part, (*[0, 0] * (part.dim() - 2), 0, more)) for part in data)) if more else data
