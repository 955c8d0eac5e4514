"""Convolutional networks as a CPU likes them: the same function, its images with channels last in memory.

Convolutions of few channels and pooling are several times faster so. Pooling comes before a ReLU that it
would follow, on a quarter of the numbers: the largest of a window is the same. What a model's layers do not
bear, or what would change its answers, is left as it is.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ifca.models.networks import ResponseNorm
from ifca.models.passes import replaced

CLOSE = 1e-3  # what outputs may differ by, relative to the largest: rounding, and nothing else


class LastResponseNorm(nn.Module):
    """ResponseNorm over the last dimension in memory; t^-3/4 by roots, which are faster than powers."""

    def __init__(self, plain: ResponseNorm) -> None:
        super().__init__()
        self.beta, self.band = plain.beta, plain.band

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, channels, height, width]."""
        y = x.permute(0, 2, 3, 1)
        t = 1 + F.linear(y * y, self.band.to(y.dtype))
        root = t.rsqrt()
        power = root * root.sqrt() if self.beta == 0.75 else t.pow(-self.beta)
        return (y * power).permute(0, 3, 1, 2)


def channels_last(module: nn.Module, x: Tensor) -> nn.Module | None:
    """A copy that computes the same, faster on a CPU; None: there is none. x: some samples to try it on."""
    if not any(isinstance(part, nn.Conv2d) for part in module.modules()):
        return None
    copied = replaced(module, lambda _, part: _instead(part))
    assert copied is not None  # one of its layers is a convolution
    for part in copied.modules():
        if isinstance(part, nn.Sequential):
            _pool_first(part)
    try:
        with torch.no_grad():
            plain, found = copy.deepcopy(module).eval()(x), copy.deepcopy(copied).eval()(x)
        same = bool((plain - found).abs().max() <= CLOSE * plain.abs().max())
    except Exception:  # noqa: BLE001 a layer of the user's that looks at memory itself
        return None
    return copied if same else None


def _instead(part: nn.Module) -> nn.Module | None:
    """What takes the place of a layer."""
    if isinstance(part, ResponseNorm):
        return LastResponseNorm(part)
    if isinstance(part, nn.Conv2d | nn.MaxPool2d):
        part.register_forward_pre_hook(_to_last)
        return part
    return None


def _to_last(_layer: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return (given[0].contiguous(memory_format=torch.channels_last) if given[0].dim() == 4 else given[0],)


def _pool_first(layers: nn.Sequential) -> None:
    """A ReLU and the pooling that follows it change places."""
    names = list(layers._modules)
    for first, second in itertools.pairwise(names):
        a, b = layers._modules[first], layers._modules[second]
        if type(a) is nn.ReLU and type(b) is nn.MaxPool2d and not b.return_indices:
            layers._modules[first], layers._modules[second] = b, a
