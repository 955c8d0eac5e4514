"""The attackers' training data, where an attack changes them; and the trigger of a backdoor on test data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ifca.core.attacks import Attack
from ifca.core.errors import InvalidInput
from ifca.core.random import bits
from ifca.data import Clients, Federation


def poisoned(federation: Federation, attack: Attack | None) -> Federation:
    """The federation as its clients train on it; the given one is not changed."""
    if attack is None or attack.kind.poisons is None:
        return federation
    if federation.classes is None:
        raise InvalidInput(f"attack.name: {attack.kind.name} is of classes, and these data are a regression")
    train = federation.train
    rows, draw = attackers_samples(train, attack)
    there = rows.to(train.x.device)
    x, y = train.x.clone(), train.y.clone()
    x[there], y[there] = attack.kind.poisons(x[there], y[there], federation.classes, draw)
    return replace(federation, train=replace(train, x=x, y=y))


def attackers_samples(train: Clients, attack: Attack) -> tuple[torch.Tensor, torch.Tensor]:
    """The attackers' rows among all samples, and 64 random bits of each, by client and sample."""
    sizes = train.sizes[list(attack.rows)]
    place = [np.arange(size) for size in sizes]
    start = train.offsets[list(attack.rows)]
    rows = np.concatenate([first + some for first, some in zip(start, place, strict=True)])
    keys = np.repeat(np.array(attack.keys, np.uint64), sizes)
    draw = bits(attack.seed, "poison", keys, np.concatenate(place).astype(np.uint64))
    return torch.from_numpy(rows), torch.from_numpy(draw.view(np.int64))
