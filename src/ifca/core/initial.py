"""The k initial models, and the choice among restarts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ifca.core.averages import running_statistics
from ifca.core.errors import InvalidInput
from ifca.core.random import generator
from ifca.core.types import Params, model_count

Draw = Callable[[torch.Generator], Params]
"""One random model, from a generator and nothing else."""


def random_models(
    draw: Draw, k: int, seed: int, restart: int, shared: frozenset[str], redraw: int = 0
) -> Params:
    """As many independent draws as clusters; shared coordinates are the first's. redraw: which such draw."""
    models = [draw(generator(seed, "initial", restart, redraw * k + j)) for j in range(k)]
    theta = {name: torch.stack([model[name] for model in models]) for name in models[0]}
    return with_shared(theta, shared)


def bernoulli(draw: Draw) -> Draw:
    """The paper's draw for the linear model: each coordinate is 0 or 1 with probability 1/2."""

    def drawn(rng: torch.Generator) -> Params:
        model = draw(rng)
        fixed = running_statistics(model)
        return {
            name: v if name in fixed else torch.bernoulli(torch.full_like(v, 0.5), generator=rng)
            for name, v in model.items()
        }

    return drawn


def warm_start(given: Params, like: Params, shared: frozenset[str]) -> Params:
    """Given models [k, ...] to start from. like: [1, ...] a model of the kind that is trained."""
    check_like(given, like)
    return with_shared({name: given[name].to(value).clone() for name, value in like.items()}, shared)


def with_shared_of(given: Params, theta: Params, shared: frozenset[str]) -> Params:
    """Drawn models whose shared layers are those of one given model [1, ...]."""
    check_like(given, theta)
    return {n: given[n].to(v).expand_as(v).clone() if n in shared else v for n, v in theta.items()}


def check_like(given: Params, theta: Params) -> None:
    """Refuse models of another kind."""
    for name, value in theta.items():
        if name not in given or given[name].shape[1:] != value.shape[1:]:
            raise InvalidInput(f"the warm start has no parameter {name} of shape {tuple(value.shape[1:])}")


def with_shared(theta: Params, shared: frozenset[str]) -> Params:
    """Shared coordinates of all models set to those of the first."""
    return {n: v[:1].expand_as(v).clone() if n in shared else v for n, v in theta.items()}


def is_balanced(identity: Tensor, k: int, share: float = 0.35) -> bool:
    """Whether each of the k models is chosen by at least this share of the clients (D9)."""
    return int(torch.bincount(identity, minlength=k).min()) >= share * len(identity)


def assert_distinct(theta: Params) -> None:
    """K models that begin equal stay equal: every client would choose the first for ever."""
    k = model_count(theta)
    flat = torch.cat([value.reshape(k, -1) for value in theta.values()], dim=1)
    for i in range(k):
        for j in range(i):
            if torch.equal(flat[i], flat[j]):
                raise InvalidInput(f"initial models {j} and {i} are equal: k initial models must differ")


def best_restart(train_losses: Sequence[float]) -> int:
    """The restart with the lowest training loss of the clients; a user has no oracle (D4)."""
    if not any(math.isfinite(loss) for loss in train_losses):
        raise InvalidInput("no restart ended with a finite training loss")
    return min(range(len(train_losses)), key=lambda r: (not math.isfinite(train_losses[r]), train_losses[r]))
