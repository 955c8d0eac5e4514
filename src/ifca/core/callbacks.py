"""Who is told while training goes on: a progress bar, a tracker, something of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """T, how many there will be; with early stopping at most."""
    history: Sequence[Record] = ()
    """The rounds that were done before."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Everything that decides it."""


class StopTraining(Exception):
    """Raised by a callback: training ends after this round, and its models are kept as they are."""


class Callback(Protocol):
    """Told of trainings: each started, its rounds, and what came out. Methods that it lacks are not called.

    Where round_ended returns True or raises StopTraining, training ends after that round as if it had been
    the last one. Any other exception ends it without a result; what was done before it is not lost: 'ifca
    resume' goes on with a run, and IFCA.finish makes a fit of the rounds that are done.
    """

    def started(self, training: Training) -> None:
        """A training begins; where it goes on, its history holds what this or an earlier process was told."""
        ...

    def round_ended(self, record: Record) -> bool | None:
        """A round has ended: a line of rounds.jsonl. True: it was the last one."""
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
    """Tells some others, one after the other; each is told what it has a method for."""

    def __init__(self, callbacks: Sequence[object]) -> None:
        self.callbacks = tuple(callbacks)

    def started(self, training: Training) -> None:
        """Pass it on."""
        self._tell("started", training)

    def round_ended(self, record: Record) -> bool:
        """Pass it on; True where one of them wants to stop."""
        return self._tell("round_ended", record)

    def finished(self, summary: dict[str, Any]) -> None:
        """Pass it on."""
        self._tell("finished", summary)

    def _tell(self, name: str, told: object) -> bool:
        calls = [getattr(one, name) for one in self.callbacks if hasattr(one, name)]
        answers = [wants_to_stop(call, told) for call in calls]  # all are told, whoever wants to stop
        return any(answers)


def wants_to_stop(call: Callable[..., object], *told: object) -> bool:
    """Tell somebody; whether the answer is to stop: True, or StopTraining."""
    try:
        answer = call(*told)
    except StopTraining:
        return True
    kind = getattr(answer, "dtype", type(answer))  # of numpy's bool, too
    return kind == bool and bool(answer)  # noqa: E721
