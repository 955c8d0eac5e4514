"""Processes that share the GPUs of a machine, each pinned to one of them, the next after the last."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

import torch

from ifca.core.errors import IFCAError, InvalidInput
from ifca.engines.ranks import launched

Task = TypeVar("Task")
Result = TypeVar("Result")
VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus(device: str = "auto") -> list[str]:
    """The GPUs of this machine that may be used, as CUDA names them; none where the device is cpu."""
    if device == "cpu" or not torch.cuda.is_available():
        return []
    named = os.environ.get(VISIBLE)
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]


def workers_of(asked: int | None, device: str) -> int:
    """How many processes: what was asked for, else one for each GPU; one under torchrun, which has them."""
    if asked is not None and asked < 1:
        raise InvalidInput(f"workers must be at least 1, got {asked}")
    if launched():
        return 1
    return max(1, len(gpus(device))) if asked is None else asked


class Pool:
    """Such processes; begun with the first tasks, they serve those that come later, too."""

    def __init__(self, workers: int, devices: Sequence[str]) -> None:
        """devices: the GPUs, dealt to the workers in turn; none: they see what this process sees."""
        self.workers, self._devices = workers, devices
        self._executor: ProcessPoolExecutor | None = None
        self._others = set[Any]()  # processes that were there before

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_reason: object) -> None:
        self._end(at_once=False)

    def each(
        self, tasks: Sequence[Task], work: Callable[[Task], Result], until: float = math.inf
    ) -> Iterator[Result]:
        """What work gives of each task, as it comes; work: a function that another process can import.

        until: the moment (time.monotonic) after which no task is begun.
        """
        left, begun = list(reversed(tasks)), set[Future[Result]]()
        try:
            while begun or left:
                while left and len(begun) < self.workers and time.monotonic() < until:
                    begun.add(self._begun().submit(work, left.pop()))
                if not begun:
                    return
                done, begun = wait(begun, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        except BrokenProcessPool:
            self._end(at_once=False)
            message = "a worker process was killed, perhaps because memory ran out; the same command goes on"
            raise IFCAError(
                f"{message} after the last finished unit, with fewer --workers if need be"
            ) from None
        except BaseException:  # an interrupt: nobody waits for what is half done
            self._end(at_once=True)
            raise

    def _begun(self) -> ProcessPoolExecutor:
        if self._executor is None:
            self._others, spawn = set(active_children()), get_context("spawn")
            dealt = spawn.SimpleQueue()
            for i in range(self.workers):
                dealt.put(self._devices[i % len(self._devices)] if self._devices else None)
            self._executor = ProcessPoolExecutor(self.workers, spawn, _begin, (dealt,))
        return self._executor

    def _end(self, *, at_once: bool) -> None:
        if self._executor is None:
            return
        if at_once:
            for child in set(active_children()) - self._others:
                child.terminate()
        self._executor.shutdown()
        self._executor = None


def pooled(
    tasks: Sequence[Task], work: Callable[[Task], Result], workers: int, devices: Sequence[str]
) -> Iterator[Result]:
    """The same by processes for these tasks alone."""
    with Pool(min(workers, len(tasks)), devices) as pool:
        yield from pool.each(tasks, work)


def _begin(dealt: Any) -> None:
    """A worker's beginning: its GPU, one thread, and an end when the command is killed."""
    device = dealt.get()
    if device is not None:
        os.environ[VISIBLE] = device  # CUDA looks at it when it is first used
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
