"""The paper's way to make clusters of one set of images: each rotation deals all of them to its clients."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.core.random import shuffled
from ifca.data.clients import Clients
from ifca.data.federation import Federation


class Images(NamedTuple):
    """A set of labelled images."""

    x: NDArray[np.uint8]  # [n, ..., height, width]
    y: NDArray[np.int64]  # [n]


def rotated(
    train: Images,
    test: Images,
    *,
    samples: int,
    angles: tuple[int, ...],
    shares: tuple[float, ...] | None = None,
    clients: int | None = None,
    test_clients: int | None = None,
    seed: int = 0,
) -> Federation:
    """Clients of `samples` images each; one cluster per angle (degrees, counter-clockwise).

    Each angle takes its own random order of all training images, and the test images in their order, and
    cuts them into clients (images left over are not used). shares: each angle's share of the clients, in
    training and testing; None: equal. clients, test_clients: how many in all; None: as many as the images
    allow. An angle that is named twice deals twice: (0, 0, 0, 0) has no clusters to be found.
    """
    shares = _checked(samples, angles, shares)
    counts = _counts("clients", len(train.x) // samples, shares, clients)
    test_counts = _counts("test_clients", len(test.x) // samples, shares, test_clients)
    orders = [
        shuffled(seed, "rotated-deal", np.array([len(train.x)]), np.array([place]))[0]
        for place in range(len(angles))
    ]
    in_order = [np.arange(len(test.x))] * len(angles)
    return Federation(
        _deal(train, orders, angles, counts, samples, ""),
        _deal(test, in_order, angles, test_counts, samples, "test-"),
        classes=int(train.y.max()) + 1,
    )


def _checked(samples: int, angles: tuple[int, ...], shares: tuple[float, ...] | None) -> tuple[float, ...]:
    if not angles or any(angle % 90 for angle in angles):
        raise InvalidInput(f"data.angles must be multiples of 90 degrees, got {list(angles)}")
    if samples < 1:
        raise InvalidInput(f"data.samples must be at least 1, got {samples}")
    if shares is None:
        return (1 / len(angles),) * len(angles)
    if len(shares) != len(angles):
        raise InvalidInput(f"data.shares has {len(shares)} entries but data.angles has {len(angles)}")
    if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise InvalidInput(f"data.shares must be positive and add up to 1, got {list(shares)}")
    return shares


def _counts(field: str, most: int, shares: tuple[float, ...], total: int | None) -> list[int]:
    """Clients of each angle; most: what the images allow for one angle."""
    if most < 1:
        raise InvalidInput("data.samples is larger than the set of images: no client can be filled")
    m = int(most / max(shares) + 1e-9) if total is None else total
    exact = [share * m for share in shares]
    counts = [int(part + 1e-9) for part in exact]
    rest = sorted(range(len(shares)), key=lambda i: counts[i] - exact[i])  # largest remainder first
    for i in rest[: m - sum(counts)]:
        counts[i] += 1
    if max(counts) > most:
        raise InvalidInput(
            f"data.{field} = {m} needs {max(counts)} clients of one angle; there are images for {most}"
        )
    if min(counts) < 1:
        raise InvalidInput(f"data.{field} = {m} leaves an angle without a client")
    return counts


def _deal(
    images: Images,
    orders: list[NDArray[np.int64]],
    angles: tuple[int, ...],
    counts: list[int],
    samples: int,
    prefix: str,
) -> Clients:
    x: list[NDArray[Any]] = []
    y, ids = [], []
    for place, (angle, count) in enumerate(zip(angles, counts, strict=True)):
        mine = orders[place][: count * samples]
        x.append(np.rot90(images.x[mine], angle // 90, axes=(-2, -1)))
        y.append(images.y[mine])
        name = str(angle) if angles.count(angle) == 1 else f"{angle}.{place}"
        ids += [f"{prefix}{name}-{i:04d}" for i in range(count)]
    offsets = np.arange(sum(counts) + 1, dtype=np.int64) * samples
    true = np.repeat(np.array(angles, np.int64), counts)
    return Clients(
        torch.from_numpy(np.concatenate(x)), torch.from_numpy(np.concatenate(y)), offsets, tuple(ids), true
    )
