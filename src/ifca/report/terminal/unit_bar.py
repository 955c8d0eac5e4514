"""Units of an experiment for people: a bar on a terminal, a line per unit elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

Line = dict[str, Any]


class UnitWords(Protocol):
    """What is said of a finished unit, the done-th of so many, and of the time left."""

    def describe(self, line: Line, done: int, of: int) -> str:
        """All of it, in a line."""
        ...

    def left(self, done: int, of: int) -> str:
        """The time left."""
        ...

    def unit(self, line: Line) -> str:
        """The unit in a few words."""
        ...


@contextmanager
def watching_units(
    console: Console, name: str, words: UnitWords
) -> Iterator[Callable[[Line, int, int], None]]:
    """Someone who is told each finished unit of the experiment of this name."""
    if not console.is_terminal:
        yield lambda line, done, of: console.print(
            f"{name}: {words.describe(line, done, of)}", soft_wrap=True, highlight=False, markup=False
        )
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[said]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    ]
    with Progress(*columns, console=console, expand=True) as progress:
        bar = progress.add_task(name, total=None, left="", said="")

        def told(line: Line, done: int, of: int) -> None:
            progress.update(bar, completed=done, total=of, left=words.left(done, of), said=words.unit(line))

        yield told
