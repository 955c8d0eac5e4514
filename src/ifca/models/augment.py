"""Random crops and flips of training images, from numbers that are drawn elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ifca.core.errors import InvalidInput
from ifca.models.networks import CentreCrop


def crop_and_flip(size: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Images [n, channels, height, width], draws [n] -> random crops [n, channels, size, size].

    A draw, a random whole number, decides where its image is cut and whether it is mirrored, left to right.
    """

    def augment(x: Tensor, draws: Tensor) -> Tensor:
        if x.dim() != 4 or min(x.shape[2:]) < size:
            shape = tuple(x.shape[1:])
            raise InvalidInput(
                f"augment: needs images [channels, height, width] of {size} or more, got {shape}"
            )
        rows, columns = x.shape[2] - size + 1, x.shape[3] - size + 1  # places to cut at
        along = torch.arange(size, device=x.device)
        top = draws % rows
        left = torch.div(draws, rows, rounding_mode="floor") % columns
        mirrored = torch.div(draws, rows * columns, rounding_mode="floor") % 2
        row = top[:, None] + along  # [n, size]
        column = left[:, None] + torch.where(mirrored[:, None] == 1, size - 1 - along, along)
        n, channels = x.shape[:2]
        strip = x.gather(2, row[:, None, :, None].expand(n, channels, size, x.shape[3]))
        return strip.gather(3, column[:, None, None, :].expand(n, channels, size, size))

    return augment


def augment_of(module: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Random crops in the place of the model's own centre crop."""
    for part in module.modules():
        if isinstance(part, CentreCrop):
            return crop_and_flip(part.size)
    raise InvalidInput("augment: needs a model that crops its images (CentreCrop), such as cifar-cnn")
