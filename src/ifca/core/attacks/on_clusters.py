"""Attacks that only a clustered federation knows: on who belongs where, and on one cluster alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ifca.core.attacks.attack import Seen


def smallest(honest: Tensor, own: Tensor, _losses: Tensor) -> Tensor:
    """All claim the cluster with the fewest honest clients (of equal ones the first). honest: [h]."""
    if not len(honest):
        return own
    found, count = torch.unique(honest, return_counts=True)
    return torch.full_like(own, int(found[count.argmin()]))


def worst_fitting(_honest: Tensor, own: Tensor, losses: Tensor) -> Tensor:
    """Each claims the model that fits its data worst; one that judged no other claims its own."""
    judged = torch.where(losses.isfinite(), losses, -torch.inf)
    return torch.where(judged.isfinite().any(1), judged.argmax(1).to(own), own)


def drag(seen: Seen) -> Iterator[Tensor]:
    """What the mean of the cluster needs to become the nearest other model: (n towards - sum of the honest)
    / a from each attacker. strength: the share of that way.
    """
    for block in seen.blocks():
        h, a = len(block.honest), len(block.own)
        yield ((h + a) * seen.factor * seen.towards(block.part) - block.honest.sum(0)) / a


def boosted(seen: Seen) -> Iterator[Tensor]:
    """The own change n / a times (or strength times): the mean of the cluster then carries it whole."""
    for block in seen.blocks():
        h, a = len(block.honest), len(block.own)
        yield (seen.strength or (h + a) / a) * block.own
