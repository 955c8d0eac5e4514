"""What a client tells of a column so that all can prepare it alike: counts, sums and a sketch, no rows.

The statistics of clients add up: those of a federation are the sum of its clients', in any order.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.data.cells import Cells

MOST_VALUES = 50
"""A column with more values than this is no category, and its values are not told."""
MOST_CLASSES = 1000
"""The same of a label."""
_ERROR = 0.002  # relative error of a median that is read off a sketch
_GAMMA = (1 + _ERROR) / (1 - _ERROR)  # the width of a bucket
_TINY = 1e-12  # numbers of smaller size are counted as 0
_LARGEST = math.log(sys.float_info.max)


@dataclass(frozen=True)
class ColumnStatistics:
    """One column of one client, or of several together."""

    rows: int = 0
    holes: int = 0
    numbers: int = 0
    whole: int = 0
    """Cells that are written as whole numbers."""
    dates: int = 0
    distinct: int = 0
    """Different values in each client, added up: as many as cells where none repeats."""
    smallest: float = math.inf
    largest: float = -math.inf
    values: dict[str, int] | None = field(default_factory=dict)
    """How often each value occurs; None: there are too many."""
    untold: int = 0
    """Cells whose value is not among them, because it is too rare in its client."""
    sketch: dict[int, int] = field(default_factory=dict)
    """How many numbers lie in each bucket, whose bounds grow by a fixed factor (a DDSketch)."""

    @property
    def words(self) -> int:
        """Cells that are neither missing nor numbers."""
        return self.rows - self.holes - self.numbers

    def __add__(self, other: ColumnStatistics) -> ColumnStatistics:
        """The statistics of both together."""
        summed = ("rows", "holes", "numbers", "whole", "dates", "distinct", "untold")
        values = None if self.values is None or other.values is None else _sum(self.values, other.values)
        return ColumnStatistics(
            **{name: getattr(self, name) + getattr(other, name) for name in summed},
            smallest=min(self.smallest, other.smallest),
            largest=max(self.largest, other.largest),
            values=values,
            sketch=_sum(self.sketch, other.sketch),
        )

    def median(self) -> float:
        """The (lower) middle of the numbers to 0.2 %; 0 where there are none."""
        if not self.numbers:
            return 0.0
        low, high = _bounds(_middle(self.sketch, self.numbers))
        middle = max(low, self.smallest) / 2 + min(high, self.largest) / 2
        short = float(round(middle)) if self.whole == self.numbers else float(f"{middle:.4g}")
        # Of numbers that differ in later digits only (1234567890.1, ...) four digits are not enough.
        return short if self.smallest <= short <= self.largest else middle

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        known = asdict(self)
        if not self.numbers:
            known["smallest"] = known["largest"] = None
        return known | {"sketch": sorted(self.sketch.items())}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> ColumnStatistics:
        """The inverse of to_json; ValueError: no column has such statistics."""
        known = {**content, "sketch": {int(bucket): int(n) for bucket, n in content["sketch"]}}
        if content["smallest"] is None:
            del known["smallest"], known["largest"]
        found = cls(**known)
        if not found._is_possible():
            raise ValueError("no column has such statistics")
        return found

    def _is_possible(self) -> bool:
        """Whether an honest client may say this."""
        counts = [self.rows, self.holes, self.numbers, self.whole, self.dates, self.distinct, self.untold]
        counts += [*(self.values or {}).values(), *self.sketch.values()]
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            return False
        if self.holes + self.numbers > self.rows or sum(self.sketch.values()) != self.numbers:
            return False
        return not self.numbers or (
            math.isfinite(self.smallest) and math.isfinite(self.largest) and self.smallest <= self.largest
        )


Statistics = Mapping[str, ColumnStatistics]
"""By column."""


def client_statistics(
    table: Mapping[str, Cells], labels: Iterable[str] = (), least: int = 1
) -> dict[str, ColumnStatistics]:
    """What a client tells of its training rows.

    labels: columns whose values are classes; all are told. least: other values are told where they occur so
    often: from 2 on no name or remark leaves a client that stands there once.
    """
    return {
        name: _of_column(cells, MOST_CLASSES, 1) if name in labels else _of_column(cells, MOST_VALUES, least)
        for name, cells in table.items()
    }


def merged(clients: Iterable[Statistics]) -> dict[str, ColumnStatistics]:
    """The statistics of all clients together."""
    found: dict[str, list[ColumnStatistics]] = {}
    for client in clients:
        for name, statistics in client.items():
            found.setdefault(name, []).append(statistics)
    return {name: reduce(ColumnStatistics.__add__, each) for name, each in found.items()}


def _of_column(cells: Cells, most: int, least: int) -> ColumnStatistics:
    numbers = cells.numbers[np.isfinite(cells.numbers)]
    told = _may_repeat(cells, most)
    counts = Counter(text for text in cells.texts if text) if told else Counter[str]()
    common = {text: n for text, n in sorted(counts.items()) if n >= least}
    return ColumnStatistics(
        rows=len(cells),
        holes=int(cells.missing.sum()),
        numbers=len(numbers),
        whole=cells.whole,
        dates=cells.dates,
        distinct=len(counts) if told else len(np.unique(numbers)),
        smallest=float(numbers.min()) if len(numbers) else math.inf,
        largest=float(numbers.max()) if len(numbers) else -math.inf,
        values=common if told and len(common) <= most else None,
        untold=counts.total() - sum(common.values()),
        sketch=_sketch(numbers),
    )


def _may_repeat(cells: Cells, most: int) -> bool:
    """Whether it is worth counting texts: most columns of numbers are seen at once not to repeat."""
    return len(cells) < 1000 or bool(cells.words.any()) or len(np.unique(cells.numbers[:10_000])) <= most


def _sketch(numbers: NDArray[np.float64]) -> dict[int, int]:
    """Bucket 0: zero; +-i: the size is from gamma^(i-1) to gamma^i times TINY."""
    size = np.abs(numbers)
    large = size > _TINY
    above = np.log(np.where(large, size, 1.0)) - math.log(_TINY)  # a quotient of 1e308 would be infinite
    steps = np.ceil(above / math.log(_GAMMA)).astype(np.int64)
    buckets, counts = np.unique(
        np.where(large, np.sign(numbers) * np.maximum(steps, 1), 0), return_counts=True
    )
    return {int(bucket): int(n) for bucket, n in zip(buckets, counts, strict=True)}


def _bounds(bucket: int) -> tuple[float, float]:
    """Between which numbers a bucket lies."""
    if bucket == 0:
        return 0.0, 0.0
    low, high = (
        math.exp(min(math.log(_TINY) + i * math.log(_GAMMA), _LARGEST))
        for i in (abs(bucket) - 1, abs(bucket))
    )
    return (low, high) if bucket > 0 else (-high, -low)


def _middle(counts: dict[int, int], n: int) -> int:
    """The bucket of the lower median; counts: of each bucket."""
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if 2 * seen >= n:
            return bucket
    raise AssertionError("there are no numbers")


def _sum(left: Mapping[Any, int], right: Mapping[Any, int]) -> dict[Any, int]:
    return dict(sorted(Counter(left).__add__(Counter(right)).items()))
