"""What the exact fast path, and its kernels on a GPU, do not cover: the one list that engines ask.

'ifca bench' prints it: for a job the reasons that hold, with --not-covered all of them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch

from ifca.core.averages import parameters_of
from ifca.core.client import client_round
from ifca.core.optimisers import optimiser_of
from ifca.core.recipe import Recipe
from ifca.core.types import Task
from ifca.data import Clients
from ifca.methods.registry import method_of

LARGEST = 4096  # samples of a client whose Gram matrix is kept on a GPU: 64 MiB
WIDEST = 4096.0  # features
"""Activations must stay below fp16's 65,504, and numbers of 1 exact in a column that has such a one."""
Reason = Callable[[Task, Recipe], bool]
"""Whether the exact path cannot train a task by a recipe, for one reason."""


def _regularised(task: Task, recipe: Recipe) -> bool:
    """Whether l2 moves the first layer, which then leaves the span of the client's data."""
    if recipe.l2 == 0 or task.first is None:
        return False
    own = [name for name in (task.first.weight, task.first.bias) if name is not None]
    return not recipe.l2_layers or bool(parameters_of(own, recipe.l2_layers))


def _wide(clients: Clients) -> bool:
    """Whether features are so large that fp16 parts do not hold them."""
    if not clients.x.is_floating_point() or not clients.x.numel():
        return False
    low, high = (float(part) for part in torch.aminmax(clients.x))
    return not max(-low, high) <= WIDEST  # so no numbers are too


NOT_EXACT: dict[str, Reason] = {
    "models that do not begin with a linear layer": lambda task, _: task.first is None,
    "methods whose clients do more than the paper's turn": (
        lambda _, recipe: method_of(recipe.algorithm).client is not client_round
    ),
    "optimizer other than sgd and momentum, weight_decay": lambda _, recipe: not optimiser_of(recipe).sums,
    "momentum or proximal with batch_size": (
        lambda _, recipe: recipe.batch_size is not None and not optimiser_of(recipe).plain
    ),
    "resample": lambda _, recipe: recipe.resample,
    "augment": lambda task, _: task.augment is not None,
    "l2 of the first layer": _regularised,
    "check_updates": lambda _, recipe: recipe.check_updates,
}
"""What the exact fast path does not cover, and when that is so."""

NOT_FUSED: dict[str, Callable[[Task, Recipe, Clients], bool]] = {
    "features other than bytes and float32": (
        lambda _task, _, clients: clients.x.dtype not in (torch.uint8, torch.float32)
    ),
    f"features beyond {WIDEST:,.0f}, which standardised ones do not reach": lambda _task, _, clients: _wide(
        clients
    ),
    f"clients without samples, or with more than {LARGEST}": (
        lambda _task, _, clients: not 0 < clients.sizes.min() <= clients.sizes.max() <= LARGEST
    ),
    "models other than Linear and ReLU layers in turn, with biases": (
        lambda task, _, _clients: task.first is None or task.first.bias is None or not task.first.dense
    ),
    "losses other than cross-entropy, class_weights, l2": (
        lambda task, _, _clients: (
            not task.classifies or task.objective is not None or task.penalty is not None
        )
    ),
    "methods with a model for each client": (
        lambda _task, recipe, _clients: method_of(recipe.algorithm).personal
    ),
    "batch_size": lambda _task, recipe, _clients: recipe.batch_size is not None,
    "momentum, proximal": lambda _task, recipe, _clients: not optimiser_of(recipe).plain,
    "dp_epsilon, dp_noise": lambda _task, recipe, _clients: recipe.private,
}
"""What the kernels of one CUDA GPU do not cover beside that."""


def not_exact(task: Task, recipe: Recipe) -> list[str]:
    """Why the exact fast path does not train this; nothing: it does."""
    return [about for about, holds in NOT_EXACT.items() if holds(task, recipe)]


def not_fused(task: Task, recipe: Recipe, clients: Clients, device: torch.device) -> list[str]:
    """Why kernels do not train this, as the exact path or at all; nothing: they do."""
    missing = [] if importlib.util.find_spec("triton") else ["Triton is not installed"]
    if device.type != "cuda":
        missing.append("there is no GPU")
    found = [about for about, holds in NOT_FUSED.items() if holds(task, recipe, clients)]
    return [*missing, *not_exact(task, recipe), *found]


def not_covered() -> dict[str, list[str]]:
    """All that the exact path, and that its kernels, do not cover."""
    return {"exact": list(NOT_EXACT), "kernels": list(NOT_FUSED)}
