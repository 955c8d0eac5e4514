"""The attackers' training data, where an attack changes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ifca.core.attacks import Attack
from ifca.core.errors import InvalidInput
from ifca.core.random import bits
from ifca.data import Federation


def poisoned(federation: Federation, attack: Attack | None) -> Federation:
    """The federation as its clients train on it; the given one is not changed."""
    if attack is None or attack.kind.poisons is None:
        return federation
    if federation.classes is None:
        raise InvalidInput(f"attack.name: {attack.kind.name} is of classes, and these data are a regression")
    train = federation.train
    x, y = train.x.clone(), train.y.clone()
    for i, key in zip(attack.rows, attack.keys, strict=True):  # each knows its own samples only
        mine = slice(int(train.offsets[i]), int(train.offsets[i + 1]))
        draw = bits(attack.seed, "poison", key, np.arange(train.sizes[i], dtype=np.uint64))
        chosen = torch.from_numpy(draw.view(np.int64))
        x[mine], y[mine] = attack.kind.poisons(x[mine], y[mine], federation.classes, chosen)
    return replace(federation, train=replace(train, x=x, y=y))
