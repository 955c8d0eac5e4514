"""Trainings of a study, told under a title that says which one it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ifca.core.callbacks import Callback, Record, Training


@dataclass(frozen=True)
class Titled:
    """Passes on what it is told under a title that says which k and seed it is of."""

    inner: Callback
    title: str
    alone: bool  # whether each job is a single training

    def started(self, training: Training) -> None:
        """A training begins."""
        title = self.title if self.alone else f"{self.title}, {training.title}"
        self.inner.started(replace(training, title=title))

    def round_ended(self, record: Record) -> bool | None:
        """A round has ended."""
        return self.inner.round_ended(record)

    def finished(self, summary: dict[str, Any]) -> None:
        """One of the jobs is done."""
        self.inner.finished(summary)
