"""Randomness as a function of (seed, purpose, round, client): no state, no order, no engine.

A counter-based generator: every number is a hash of its coordinates (the finaliser of SplitMix64), so a
client's draws are the same whether it is alone, in a chunk of thousands, or in a run that was resumed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # what reads a config knows this module, and needs no torch to refuse one
    import torch
    from torch import Tensor

UInts = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key_of(name: str) -> int:
    """A 64-bit key of a name (a client's id, a purpose); the same on every machine."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def bits(seed: int, purpose: str, *coordinates: int | UInts) -> UInts:
    """64 random bits for each point of the broadcast coordinates."""
    state = _mix(np.array([seed & (2**64 - 1)], np.uint64)) ^ _mix(np.array([key_of(purpose)], np.uint64))
    for coordinate in coordinates:
        state = _mix(state) ^ _mix(np.asarray(coordinate, np.uint64))
    return _mix(state)


def generator(seed: int, purpose: str, *coordinates: int) -> torch.Generator:
    """A torch generator for one purpose, where torch itself must draw (normal noise, initial weights)."""
    import torch

    return torch.Generator().manual_seed(int(bits(seed, purpose, *coordinates)[0] >> np.uint64(1)))


def shuffled(
    seed: int, purpose: str, sizes: NDArray[np.int64], *coordinates: int | UInts
) -> NDArray[np.int64]:
    """A random order of 0..size-1 for each row; rows are [c] or [c, ...] coordinates, -1 after the end.

    sizes: [c, 1, ..., 1], coordinates broadcast with it; returns [c, ..., max(sizes)].
    """
    longest = int(sizes.max())
    sample = np.arange(longest, dtype=np.uint64)
    draw = bits(seed, purpose, *[np.asarray(c, np.uint64)[..., None] for c in coordinates], sample)
    absent = sample.astype(np.int64) >= sizes[..., None]
    draw = np.where(absent, np.uint64(2**64 - 1), draw)  # padding sorts to the end
    number = np.uint64((1 << max(1, (longest - 1).bit_length())) - 1)
    order = np.sort((draw & ~number) | sample, axis=-1) & number  # ten times as fast as argsort
    order = order.astype(np.int64)
    return np.where(absent, np.int64(-1), order)


def mixed(z: Tensor) -> Tensor:
    """The same hash of whole numbers on any device: int64 -> int64, both read as 64 bits."""
    z = z + _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


def _signed(value: int) -> int:
    return value - 2**64


def _shifted(z: Tensor, places: int) -> Tensor:
    """To the right, zeros from the left."""
    found: Tensor = (z >> places) & (2 ** (64 - places) - 1)
    return found


def _mix(z: UInts) -> UInts:
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        z = z + _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
