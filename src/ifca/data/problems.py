"""What is wrong with data, a sentence each: training stops at the first, an inspection collects them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput

Complain = Callable[[str], None]
"""Told a sentence that names the file and the row. It may raise; where it returns, reading goes on."""


def refuse(sentence: str) -> NoReturn:
    """The complaint of those who are going to train."""
    raise InvalidInput(sentence)


@dataclass
class Findings:
    """The complaints of an inspection: all are counted, the first `most` are kept."""

    most: int = 50
    kept: list[str] = field(default_factory=list)
    count: int = 0

    def __call__(self, sentence: str) -> None:
        """Take a complaint."""
        self.count += 1
        if len(self.kept) < self.most:
            self.kept.append(sentence)


@dataclass(frozen=True)
class Source:
    """Where a part of a client's data stands, to be named in a complaint."""

    name: str
    """A file, a file and a client in it, or a client."""
    rows: NDArray[np.int64] | None = None
    """The place of each sample there; None: 0, 1, ..."""
    unit: str = "row"
    """What these places count; line: of a text file, whose header is line 1."""

    def row(self, i: int) -> str:
        """The place of sample i."""
        return f"{self.unit} {i if self.rows is None else self.rows[i]}"
