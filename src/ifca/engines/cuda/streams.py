"""Captured work on several streams side by side, and the copies that bring it its inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch

STREAMS = 4
GROWTH = 1.25  # sizes are rounded up to about powers of this


class Streams:
    """Parts of a chunk in turn on a few streams; the caller's stream waits for all of them in the end."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def parts(self, count: int, at_once: int) -> Iterator[tuple[slice, Any, int]]:
        """Of count clients: some at once, the stream to enter for them, and the stream's number."""
        current = torch.cuda.current_stream()
        for turn, first in enumerate(range(0, count, at_once)):
            number = turn % STREAMS
            if number == len(self._made):
                self._made.append(torch.cuda.Stream())  # type: ignore[no-untyped-call]
            self._made[number].wait_stream(current)
            yield slice(first, first + at_once), torch.cuda.stream(self._made[number]), number
        for stream in self._made:
            current.wait_stream(stream)

    @staticmethod
    def captured(work: Callable[[], None], pool: Any = None) -> Any:
        """A graph of work, captured on the current stream; work is done once before it.

        pool: where other graphs take their memory from; one of them runs at a time, and leaves nothing there.
        """
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        torch.cuda.synchronize()
        work()  # libraries choose their algorithms before the capture
        gc.collect()  # what is freed within a capture, an earlier engine's graphs say, makes it invalid
        torch.cuda.synchronize()
        gc.disable()
        try:
            with torch.cuda.graph(graph, stream=stream, pool=pool):
                work()
        finally:
            gc.enable()
        return graph


def some_of(parts: Any, rows: slice) -> Any:
    """Some clients of what has a leading dimension of clients."""
    return each(lambda part: part[rows], parts)


def copy(to: Any, given: Any) -> None:
    """From tensor to tensor of the same structure."""
    each(lambda a, b: a.copy_(b), to, given)


def each(function: Callable[..., Any], *parts: Any) -> Any:
    """A function of every tensor in dicts, lists and named tuples of them; None: there is none.

    torch's tree_map does this and more, and takes a millisecond in a round.
    """
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return {name: each(function, *(part[name] for part in parts)) for name in first}
    if isinstance(first, (list, tuple)):
        found = [each(function, *some) for some in zip(*parts, strict=True)]
        return type(first)._make(found) if hasattr(first, "_make") else type(first)(found)
    return function(*parts)


def evened(size: int, largest: int) -> int:
    """The size that a capture is made for: one of a few, so that few captures serve clients of many sizes."""
    found = 1
    while found < size:
        found = max(found + 1, int(found * GROWTH))
    return min(found, largest)
