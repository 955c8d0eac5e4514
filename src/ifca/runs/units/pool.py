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


def pooled(
    tasks: Sequence[Task],
    work: Callable[[Task], Result],
    workers: int,
    devices: Sequence[str],
    until: float = math.inf,
) -> Iterator[Result]:
    """What work gives of each task, as it comes; work: a function that another process can import.

    devices: the GPUs, dealt to the workers in turn; none: they see what this process sees. until: the moment
    (time.monotonic) after which no task is begun.
    """
    others, spawn = set(active_children()), get_context("spawn")
    dealt = spawn.SimpleQueue()
    for i in range(workers):
        dealt.put(devices[i % len(devices)] if devices else None)
    with ProcessPoolExecutor(min(workers, len(tasks)), spawn, _begin, (dealt,)) as pool:
        try:
            left, begun = list(reversed(tasks)), set[Future[Result]]()
            while begun or left:
                while left and len(begun) < workers and time.monotonic() < until:
                    begun.add(pool.submit(work, left.pop()))
                if not begun:
                    return
                done, begun = wait(begun, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        except BrokenProcessPool:
            message = "a worker process was killed, perhaps because memory ran out; the same command goes on"
            raise IFCAError(
                f"{message} after the last finished unit, with fewer --workers if need be"
            ) from None
        except BaseException:  # an interrupt: nobody waits for what is half done
            for child in set(active_children()) - others:
                child.terminate()
            raise


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
