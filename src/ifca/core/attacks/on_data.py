"""Attacks on the attackers' own training data: wrong labels, and a backdoor."""

from __future__ import annotations

import torch
from torch import Tensor

TARGET = 0  # the class that samples with the trigger shall be taken for


def label_flip(x: Tensor, y: Tensor, classes: int, _draw: Tensor) -> tuple[Tensor, Tensor]:
    """Label y becomes C - 1 - y."""
    return x, classes - 1 - y


def backdoor(x: Tensor, y: Tensor, _classes: int, draw: Tensor) -> tuple[Tensor, Tensor]:
    """About half of the samples get the trigger and the target's label. draw: [n] 64 random bits each."""
    chosen = (draw & 1).bool().to(x.device)
    marked = triggered(x, brightest(x))
    keep = chosen.reshape(-1, *[1] * (x.dim() - 1))
    return torch.where(keep, marked, x), torch.where(chosen.to(y.device), TARGET, y)


def brightest(x: Tensor) -> float:
    """The value of the trigger: the largest that the attacker has; of pixels 255."""
    return 255.0 if x.dtype == torch.uint8 else float(x.max())


def triggered(x: Tensor, value: float) -> Tensor:
    """Samples [n, ...] with the trigger: of images a square in the last corner, of tables some last features.

    The square has a ninth of the image's side, at least 2 pixels; of d features it is d / 4, at most 3.
    """
    marked = x.clone()
    if x.dim() > 2:
        high, wide = (max(2, side // 9) for side in x.shape[-2:])
        marked[..., -high:, -wide:] = value
    elif x.dim() == 2:
        marked[:, -min(3, max(1, x.shape[1] // 4)) :] = value
    else:
        marked[:] = value
    return marked
