"""Convolutions as matrix products: with a weight per client, batched products beat grouped convolutions."""

from __future__ import annotations

import copy

import torch.nn.functional as F
from torch import Tensor, nn


class ConvAsProduct(nn.Conv2d):
    """The same layer, the same parameters: patches [n L, C K K] times weights [C K K, outputs]."""

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, channels, height, width]."""
        (pad_h, pad_w), (high, wide) = self.padding, self.kernel_size  # type: ignore[misc]
        n, _, height, width = x.shape
        rows, columns = height + 2 * int(pad_h) - high + 1, width + 2 * int(pad_w) - wide + 1
        x = F.pad(x, (int(pad_w), int(pad_w), int(pad_h), int(pad_h)))
        patches = x.unfold(2, high, 1).unfold(3, wide, 1)  # [n, C, rows, columns, K, K]
        patches = patches.permute(0, 2, 3, 1, 4, 5).reshape(n * rows * columns, -1)
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
