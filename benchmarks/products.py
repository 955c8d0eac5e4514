"""Convolutions as matrix products: with a weight per client, batched products beat grouped convolutions."""

from __future__ import annotations

import copy

import torch.nn.functional as F
from torch import Tensor, nn


class ConvAsProduct(nn.Conv2d):
    """The same layer, the same parameters: patches [n L, C K K] times weights [C K K, outputs]."""

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, channels, height, width]."""
        assert not isinstance(self.padding, str)
        n, _, height, width = x.shape
        rows = height + 2 * self.padding[0] - self.kernel_size[0] + 1
        columns = width + 2 * self.padding[1] - self.kernel_size[1] + 1
        kernel = (self.kernel_size[0], self.kernel_size[1])
        patches = F.unfold(x, kernel, padding=(self.padding[0], self.padding[1]))  # [n, C K K, L]
        patches = patches.transpose(1, 2).reshape(n * rows * columns, -1)
        out = patches @ self.weight.flatten(1).t()
        if self.bias is not None:
            out = out + self.bias
        return out.view(n, rows, columns, -1).permute(0, 3, 1, 2)


def with_products(module: nn.Module) -> nn.Module:
    """A copy of the module in which plain convolutions are products; its parameters keep their names."""
    module = copy.deepcopy(module)
    for part in module.modules():
        if type(part) is nn.Conv2d and _is_plain(part):
            part.__class__ = ConvAsProduct
    return module


def _is_plain(conv: nn.Conv2d) -> bool:
    ones = conv.stride == (1, 1) and conv.dilation == (1, 1) and conv.groups == 1
    return ones and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)
