"""How many clients fit into a memory budget at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

import torch

from ifca.core.averages import running_statistics
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.types import Data, Params, Task, select

T = TypeVar("T")
DEFAULT_BUDGET = 2 * 2**30  # bytes
MODEL_COPIES = 5  # the model before and after a step, its gradient, and the double-precision sum
ACTIVATION_COPIES = 3  # what forward keeps, and backward's gradients of it


class ChunkLimit:
    """How many clients a device has shown to bear: halved, and tried again, when its memory runs out."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._share, self._last = 1.0, 0
        self._said = False

    def cap(self, size: int) -> int:
        """The chunk to use now, of those that would fit."""
        size = size if self.limit is None else min(size, self.limit)
        self._last = max(1, int(size * self._share))
        return self._last

    def run(self, work: Callable[[], T]) -> T:
        """Do work that starts from nothing; on a full device do it again with half the chunks."""
        while True:
            try:
                return work()
            except torch.OutOfMemoryError as full:
                if self._last <= 1:
                    raise InvalidInput(f"the device's memory does not hold one client ({full})") from full
                if not self._said:
                    self._said = True
                    message = (
                        f"out of device memory with {self._last} clients at once; going on with half as many"
                    )
                    warnings.warn(message, RuntimeWarning, stacklevel=3)
                self._share /= 2
            torch.cuda.empty_cache()


def default_budget(device: torch.device) -> int:
    """Bytes: half of what is free on a GPU, 2 GiB in main memory."""
    if device.type != "cuda":
        return DEFAULT_BUDGET
    return int(torch.cuda.mem_get_info(device)[0] // 2)


def client_bytes(task: Task, recipe: Recipe, theta: Params, data: Data) -> int:
    """Upper estimate of what one client of the size of data takes during its turn (data: one client)."""
    return bytes_by_rows(task, recipe, theta, data)(len(data.x))


def bytes_by_rows(task: Task, recipe: Recipe, theta: Params, data: Data) -> Callable[[int], int]:
    """The same by the client's number of samples."""
    values = next(iter(theta.values())).element_size()
    model = sum(v[0].numel() * v.element_size() for v in theta.values())
    sample = data.x[0].numel() * values
    per_sample = _saved_bytes(task, select(theta, 0), data)
    copies = MODEL_COPIES + 2 * {"sgd": 0, "momentum": 1}.get(recipe.optimizer, 2)  # moments, old and new

    def needed(rows: int) -> int:
        batch = rows if recipe.batch_size is None else min(rows, recipe.batch_size)
        identity = rows * (sample + per_sample)  # forward passes over all of the client's data
        training = batch * (2 * sample + ACTIVATION_COPIES * per_sample)
        return copies * model + rows * sample + max(identity, training)

    return needed


def chunk_size(budget: int, one: int, largest: int, clients: int) -> int:
    """Clients per chunk. one: bytes of the largest client; largest: its number of samples."""
    if one > budget:
        raise InvalidInput(
            f"memory_budget of {_mebibytes(budget)} MiB is too small for one client of {largest} samples; "
            f"the smallest that works is {_mebibytes(one)} MiB"
        )
    return max(1, min(clients, budget // one))


def _saved_bytes(task: Task, theta: Params, data: Data) -> int:
    """Bytes that one sample leaves behind in a forward pass: what autograd would save for backward."""
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> None:  # kept tensors would be kept for good: they hold what saved them
        saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()

    fixed = running_statistics(theta)
    parameters = {name: value.detach().requires_grad_(name not in fixed) for name, value in theta.items()}
    model = sum(value.numel() * value.element_size() for value in theta.values())
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda nothing: nothing):
        task.loss(task.output(parameters, data.x[:1]), data.y[:1]).sum()
    return max(4, sum(saved.values()) - model)


def _mebibytes(count: int) -> int:
    return -(-count // 2**20)
