"""Who is told while training goes on: a progress bar, a tracker, something of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Record = dict[str, Any]
"""One round of the history, as a line of rounds.jsonl."""


@dataclass(frozen=True)
class Training:
    """One training that begins, or goes on after an interruption."""

    title: str
    """The algorithm; with restarts also which: "ifca 2/3"."""
    rounds: int
    """T, how many there will be."""
    history: Sequence[Record] = ()
    """The rounds that were done before."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Everything that decides it."""


class Callback(Protocol):
    """Told of trainings: each started, its rounds, and what came out. Three methods to implement."""

    def started(self, training: Training) -> None:
        """A training begins; where it goes on, its history holds what this or an earlier process was told."""
        ...

    def round_ended(self, record: Record) -> None:
        """A round has ended: a line of rounds.jsonl."""
        ...

    def finished(self, summary: dict[str, Any]) -> None:
        """All starts of an algorithm are done: its summary (of IFCA.fit: its main numbers)."""
        ...


class Silent:
    """Nobody is told."""

    def started(self, training: Training) -> None:
        """Say nothing."""

    def round_ended(self, record: Record) -> None:
        """Say nothing."""

    def finished(self, summary: dict[str, Any]) -> None:
        """Say nothing."""


class Several:
    """Tells some others, one after the other; what one of them has no method for, it is not told."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = tuple(callbacks)

    def started(self, training: Training) -> None:
        """Pass it on."""
        self._pass_on("started", training)

    def round_ended(self, record: Record) -> None:
        """Pass it on."""
        self._pass_on("round_ended", record)

    def finished(self, summary: dict[str, Any]) -> None:
        """Pass it on."""
        self._pass_on("finished", summary)

    def _pass_on(self, name: str, what: Any) -> None:
        for one in self.callbacks:
            if (method := getattr(one, name, None)) is not None:
                method(what)
