"""What a run tells while it goes on."""

from __future__ import annotations

from typing import Protocol

from ifca.engines.rounds import Record


class Progress(Protocol):
    """Someone who watches: a progress bar, plain lines, nobody."""

    def stage(self, title: str, rounds: int, done: int) -> None:
        """A training of so many rounds begins, or goes on after some."""
        ...

    def round(self, record: Record) -> None:
        """A round has ended."""
        ...


class Silent:
    """Nobody watches."""

    def stage(self, title: str, rounds: int, done: int) -> None:
        """Say nothing."""

    def round(self, record: Record) -> None:
        """Say nothing."""
