"""Batch norm as a pure function: running statistics are entries of theta beside the parameters.

In a gradient step a layer normalises by the mean and the variance of the batch's samples, padding left out,
and the pass moves its running statistics towards them, as torch does. Everywhere else (losses that decide
identities, tests) it normalises by the running statistics, so that samples do not influence each other.

Deviation from torch, which fails there: a layer that is given one value per channel, as in a batch of one
sample, normalises by the running statistics and leaves them as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ifca.core.averages import running_statistics
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.types import Params
from ifca.models.passes import Pass

KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class FollowedNorm(nn.Module):
    """A batch-norm layer in a gradient step. x: [n, channels, ...]."""

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, now: Pass, name: str, norm: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.now, self.name, self.eps, self.momentum = now, name, norm.eps, norm.momentum
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised by the samples that weigh something."""
        present = self.now.samples(self.name, x).weight  # [n]
        given, x = x.dtype, x.to(present.dtype)
        within = list(range(2, x.dim()))  # the places of a sample
        count = present.sum() * x[0, 0].numel()  # values per channel
        enough = count > 1

        def mean_of(values: Tensor) -> Tensor:
            return present @ (values.sum(within) if within else values) / count.clamp(min=1)

        mean = mean_of(x)
        centred = x - self._wide(mean, x)
        variance = mean_of(centred.square())
        before = {part: self._statistic(part) for part in ("running_mean", "running_var")}
        self._move("running_mean", mean, enough)
        self._move("running_var", variance * count / (count - 1).clamp(min=1), enough)
        scale = torch.where(enough, variance, before["running_var"]).add(self.eps).rsqrt()
        offset = torch.where(enough, 0, mean - before["running_mean"]) * scale
        if self.weight is not None and self.bias is not None:
            scale, offset = scale * self.weight, offset * self.weight + self.bias
        return (centred * self._wide(scale, x) + self._wide(offset, x)).to(given)

    def _statistic(self, part: str) -> Tensor:
        """As it is now: a layer that is used twice in a pass has moved it already."""
        found: Tensor = self.now.changed.get(self._entry(part), getattr(self, part))
        return found

    def _move(self, part: str, value: Tensor, enough: Tensor) -> None:
        old, rate = self._statistic(part), self.momentum
        assert rate is not None
        new = torch.where(enough, (1 - rate) * old + rate * value, old)
        self.now.changed[self._entry(part)] = new.detach()

    def _entry(self, part: str) -> str:
        return f"{self.name}.{part}" if self.name else part

    @staticmethod
    def _wide(value: Tensor, x: Tensor) -> Tensor:
        """A number per channel, as x is laid out."""
        return value.reshape(1, -1, *[1] * (x.dim() - 2))


def followed(now: Pass, name: str, part: nn.Module) -> nn.Module | None:
    """What stands in the place of a batch-norm layer in gradient steps."""
    return FollowedNorm(now, name, part) if isinstance(part, nn.modules.batchnorm._BatchNorm) else None


def entries_of(module: nn.Module) -> Params:
    """What a model is: its parameters and running statistics, by name, in the order of the model."""
    parameters = dict(module.named_parameters())
    buffers = dict(module.named_buffers())
    known = parameters | {name: buffers[name] for name in running_statistics(buffers)}
    return {name: known[name].detach() for name in module.state_dict() if name in known}


def check_norm(name: str, part: nn.Module, recipe: Recipe) -> None:
    """Refuse layers that mix samples, unless the recipe says what becomes of their statistics."""
    norm = isinstance(part, nn.modules.batchnorm._BatchNorm)
    if not norm and not getattr(part, "track_running_stats", False):
        return
    kind = type(part).__name__
    if norm and recipe.batch_norm == "refuse":
        raise InvalidInput(
            f"model: layer {name} is a {kind}, which mixes samples and keeps running statistics; set "
            'batch_norm to "average" (they are averaged as parameters are) or to "client" (FedBN: every '
            "client keeps its own batch-norm layers), or use GroupNorm instead"
        )
    if type(part) not in KINDS:
        raise InvalidInput(
            f"model: layer {name} is a {kind}, whose running statistics cannot be followed; use BatchNorm1d, "
            "BatchNorm2d or BatchNorm3d with batch_norm set, or use GroupNorm instead"
        )
    if part.running_mean is None or part.momentum is None:
        raise InvalidInput(
            f"model: layer {name} is a {kind} without running statistics that a momentum moves; leave "
            "track_running_stats true and give momentum as a number"
        )
