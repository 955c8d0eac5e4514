"""Progress for people: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ifca.core.callbacks import Training

LINES_PER_STAGE = 4
BARS = 12  # on show at a time; the oldest make room


def describe(record: dict[str, Any]) -> str:
    """A round in a few words."""
    words = [f"loss {record['train_loss']:.4f}"]
    if record.get("test_accuracy") is not None:
        words.append(f"test {100 * record['test_accuracy']:.2f} %")
    elif record.get("test_loss") is not None:
        words.append(f"test loss {record['test_loss']:.4f}")
    if record["cluster_sizes"] is not None:
        words.append("clusters " + " ".join(str(size) for size in record["cluster_sizes"]))
    return ", ".join(words)


class Bars:
    """One bar per training."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def started(self, training: Training) -> None:
        """A new bar; beyond a screenful the oldest goes."""
        if len(self._progress.tasks) >= BARS:
            self._progress.remove_task(self._progress.task_ids[0])
        done = len(training.history)
        self._task = self._progress.add_task(training.title, total=training.rounds, completed=done, status="")

    def round_ended(self, record: dict[str, Any]) -> None:
        """One step of the bar."""
        assert self._task is not None
        self._progress.update(self._task, advance=1, status=describe(record).split(", clusters")[0])

    def finished(self, summary: dict[str, Any]) -> None:
        """The full bar says it."""


class Lines:
    """A few lines per training, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._title, self._rounds = "", 0

    def started(self, training: Training) -> None:
        """Remember the title."""
        self._title, self._rounds = training.title, training.rounds
        if training.history:
            self._say(f"{self._title}: goes on after round {len(training.history)}/{self._rounds}")

    def round_ended(self, record: dict[str, Any]) -> None:
        """The first, the last, and a few in between."""
        done = record["round"] + 1
        if done in (1, self._rounds) or done % max(1, self._rounds // LINES_PER_STAGE) == 0:
            self._say(f"{self._title}: round {done}/{self._rounds}, {describe(record)}")

    def finished(self, summary: dict[str, Any]) -> None:
        """The tables say it."""

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False)


@contextmanager
def watching(console: Console, *, plain: bool) -> Iterator[Bars | Lines]:
    """Someone who watches a run."""
    if plain:
        yield Lines(console)
        return
    columns = [
        TextColumn("{task.description:<9}"),
        BarColumn(12),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, TextColumn("{task.fields[status]}"), console=console) as progress:
        yield Bars(progress)
