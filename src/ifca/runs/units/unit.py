"""A unit: the smallest part of an experiment or a bench that is never repeated; it becomes one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Line = dict[str, Any]
"""A finished unit: setting, algorithm, seed and what was measured; a line of runs.jsonl."""


@dataclass(frozen=True)
class Unit:
    """One training (or a few that share their data): the smallest part that is never repeated."""

    experiment: str
    setting: str
    algorithm: str
    seed: int
    quick: bool = False

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells the units of an experiment apart."""
        return self.setting, self.algorithm, self.seed
