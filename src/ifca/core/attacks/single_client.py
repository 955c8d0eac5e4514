"""Attacks that a client does alone: it knows its own change and nothing of the others."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ifca.core.attacks.attack import Seen


def sign_flip(seen: Seen) -> Iterator[Tensor]:
    """The negative of the own change, strength times."""
    for block in seen.blocks():
        yield -seen.factor * block.own


def scale(seen: Seen) -> Iterator[Tensor]:
    """The own change, strength times."""
    for block in seen.blocks():
        yield seen.factor * block.own


def gaussian(seen: Seen) -> Iterator[Tensor]:
    """Normal noise in place of the change; strength: its standard deviation in every coordinate."""
    for block in seen.blocks():
        yield seen.factor * seen.noise(block.part)
