"""Tuning of one model to each client, watched on its way: what the model says after so many steps.

Every client tunes K times, each time on other samples of its own (weight 0: a sample that is not learned
from); the samples left out are answered too, which is how they judge. Where the model begins with a linear
layer the steps run in Gram space (gram_steps.py), else client by client as core does them, mapped by vmap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_leaves, tree_map

from ifca.core.client import local_step, optimised_step
from ifca.core.optimisers import PLAIN, Moments, Optimiser
from ifca.core.types import Data, Params, Task
from ifca.engines.gram.gram_steps import Scratch, make_signal


class Rung(NamedTuple):
    """The K models of each of b clients after some steps."""

    steps: int
    outputs: Tensor  # [b, K, n, ...]: of the client's samples, learned from or not
    models: Callable[[], Params]  # [b, K, ...]


def climb(
    task: Task,
    start: Params,
    data: Data,
    weight: Tensor,
    step: float,
    rungs: tuple[int, ...],
    *,
    mapped: bool = True,
    optimiser: Optimiser = PLAIN,
) -> Iterator[Rung]:
    """Full-batch steps from start [b, ...] on data [b, n, ...], learned from by weight [b, K, n] of 0 and 1.

    rungs: the numbers of steps to stop at, rising; mapped: whether the model can be vectorised over clients.
    """
    if mapped and task.first is not None and task.penalty is None and optimiser.plain:
        return _in_gram_space(task, start, data, weight, step, rungs)
    over = vmap if mapped else one_by_one
    return _step_by_step(task, start, data, weight, step, rungs, over, optimiser)


def _in_gram_space(
    task: Task, start: Params, data: Data, weight: Tensor, step: float, rungs: tuple[int, ...]
) -> Iterator[Rung]:
    first = task.first
    assert first is not None
    (b, k, n), x = weight.shape, data.x.flatten(2)
    z = x @ start[first.weight].transpose(1, 2)  # [b, n, h]
    g = x @ x.transpose(1, 2)
    if first.bias is not None:
        z, g = z + start[first.bias][:, None], g + 1
    z, g, y = (part.repeat_interleave(k, 0) for part in (z, g, data.y))
    rest = {
        name: value.repeat_interleave(k, 0)
        for name, value in start.items()
        if name not in (first.weight, first.bias)
    }
    share = (weight / weight.sum(2, keepdim=True).clamp(min=1)).flatten(0, 1)
    signal, learned = (
        make_signal(task, first, Scratch()),
        torch.zeros_like(z),
    )  # the sum of the D of all steps

    def models() -> Params:
        s = learned.view(b, k, n, -1)
        made = {name: value.view(b, k, *value.shape[1:]).clone() for name, value in rest.items()}
        made[first.weight] = start[first.weight][:, None] - step * torch.einsum("bknh,bnd->bkhd", s, x)
        if first.bias is not None:
            made[first.bias] = start[first.bias][:, None] - step * s.sum(2)
        return {name: made[name] for name in start}

    for q in range(rungs[-1] + 1):
        if q in rungs:
            outputs = vmap(first.rest)(rest, z)
            yield Rung(q, outputs.view(b, k, *outputs.shape[1:]), models)
        if q < rungs[-1]:
            delta, slopes = signal(rest, z, y, share)
            for name, value in rest.items():
                value.sub_(slopes[name], alpha=step)
            torch.baddbmm(z, g, delta, alpha=-step, out=z)
            learned.add_(delta)


def _step_by_step(
    task: Task,
    start: Params,
    data: Data,
    weight: Tensor,
    step: float,
    rungs: tuple[int, ...],
    over: Callable[..., Any],
    optimiser: Optimiser,
) -> Iterator[Rung]:
    def stepped(
        theta: Params, moments: Moments, sent: Params, own: Data, learned: Tensor
    ) -> tuple[Params, Moments]:
        batch = own._replace(weight=learned)
        if optimiser.plain:
            return local_step(task, theta, step, batch), moments
        return optimised_step(task, optimiser, theta, moments, sent, step, batch)

    one_step = over(over(stepped, in_dims=(0, 0, 0, None, 0)), in_dims=(0, 0, 0, 0, 0))
    said = over(over(task.output, in_dims=(0, None)), in_dims=(0, 0))
    b, k, _ = weight.shape
    theta = {name: value[:, None].expand(b, k, *value.shape[1:]) for name, value in start.items()}
    sent, begun = theta, optimiser.begin({name: value[0] for name, value in start.items()})
    moments = Moments(*(value.expand(b, k, *value.shape) for value in begun))
    for q in range(rungs[-1] + 1):
        if q in rungs:
            yield Rung(q, said(theta, data.x), lambda now=theta: now)  # type: ignore[misc]
        if q < rungs[-1]:
            theta, moments = one_step(theta, moments, sent, data, weight)


def over_clients(output: Callable[[Params, Tensor], Tensor], mapped: bool) -> Callable[..., Tensor]:
    """A model's function for b models [b, ...] and as many clients' x [b, n, ...]."""
    return (vmap if mapped else one_by_one)(output, in_dims=(0, 0))


def one_by_one(function: Callable[..., Any], in_dims: tuple[int | None, ...]) -> Callable[..., Any]:
    """What torch.func.vmap does, as a loop: for models that cannot be vectorised."""

    def looped(*arguments: Any) -> Any:
        varying = [a for a, dim in zip(arguments, in_dims, strict=True) if dim == 0]
        count = len(tree_leaves(varying)[0])
        results = [
            function(
                *(
                    a if dim is None else tree_map(lambda value, i=i: value[i], a)
                    for a, dim in zip(arguments, in_dims, strict=True)
                )
            )
            for i in range(count)
        ]
        return tree_map(lambda *parts: torch.stack(parts), *results)

    return looped
