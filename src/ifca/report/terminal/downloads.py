"""Downloads for people: a bar on a terminal, a line per file elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class FileBars:
    """A bar per file."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def say(self, line: str) -> None:
        """A line above the bars."""
        self._progress.console.print(line, soft_wrap=True, highlight=False, markup=False)

    def bytes(self, name: str, done: int, total: int | None) -> None:
        """Move the file's bar."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)


class FileLines:
    """A line when a file begins or goes on, and when it is here."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: set[str] = set()

    def say(self, line: str) -> None:
        """As it is."""
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def bytes(self, name: str, done: int, total: int | None) -> None:
        """The first and the last are told."""
        size = "" if total is None else f" of {total:,}"
        if name not in self._seen:
            self._seen.add(name)
            self.say(f"{name}: {done:,}{size} bytes")
        elif done == total:
            self.say(f"{name}: all{size} bytes")


@contextmanager
def watching_files(console: Console, *, plain: bool) -> Iterator[FileBars | FileLines]:
    """Someone who watches downloads."""
    if plain:
        yield FileLines(console)
        return
    columns = [TextColumn("{task.description}"), BarColumn(20), DownloadColumn(), TransferSpeedColumn()]
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        yield FileBars(progress)
