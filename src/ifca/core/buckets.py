"""Clients of unequal sizes side by side without padding all of them to the largest: buckets of like size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def widths(sizes: Ints, spare: int) -> Ints:
    """The number of samples that each client is padded to: that of the largest client of its bucket. [m].

    From the largest size down, a bucket ends where it would have more than spare rows of padding; those of
    one size are never parted. spare: the rows that take as long as beginning another bucket.
    """
    found, at, count = np.unique(sizes, return_inverse=True, return_counts=True)
    wide, largest, padding = np.empty_like(found), 0, 0
    for i in range(len(found) - 1, -1, -1):
        padding += int(count[i]) * (largest - int(found[i]))
        if largest == 0 or padding > spare:
            largest, padding = int(found[i]), 0
        wide[i] = largest
    return wide[at.reshape(-1)].astype(np.int64)


def groups(sizes: Ints, spare: int, most: int) -> Iterator[Ints]:
    """The numbers of some clients of like size at a time, in rising order; at most so many padded rows."""
    wide = widths(sizes, spare)
    order = np.argsort(wide, kind="stable")
    for bucket in np.split(order, np.flatnonzero(np.diff(wide[order])) + 1):
        size = max(1, most // max(1, int(wide[bucket[0]]))) if len(bucket) else 1
        yield from (bucket[i : i + size] for i in range(0, len(bucket), size))


def rows_of(offsets: Ints, who: Ints) -> Ints:
    """The rows of some clients, one after the other. offsets: [m + 1], where each client's rows begin."""
    sizes = np.diff(offsets)[who]
    ends = np.cumsum(sizes)
    return np.repeat(offsets[who] - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
