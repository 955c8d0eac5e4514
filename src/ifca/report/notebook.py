"""A fitted model in a notebook: its page, or a card where the page is large; and progress while it trains."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from ifca.core.callbacks import Callback, Record, Training
from ifca.report.read_run import RunFolder, read_run
from ifca.report.words import count, duration, number, percent, title_of

LARGEST = 3_000_000  # characters of a page that a notebook keeps; beyond it a card is shown
HEIGHT = 640  # pixels


def shown_page(folder: Path, largest: int = LARGEST) -> str:
    """The page of a run in a frame of its own, which cannot reach the notebook."""
    from ifca.report.page import page  # here: fitting does without jinja2

    run = read_run(folder)
    # Links to sections stay in the frame, whose base would be the notebook's own address.
    whole = page([run]).replace("<head>", '<head>\n<base href="about:srcdoc">', 1)
    if len(whole) > largest:
        return card(run)
    frame = f'title="Report" width="100%" height="{HEIGHT}" style="border:1px solid #8884"'
    return f'<iframe sandbox="allow-scripts allow-downloads" {frame} srcdoc="{escape(whole)}"></iframe>'


def card(run: RunFolder) -> str:
    """The main numbers of a run, and a line per cluster."""
    s = run.summary
    facts = [
        count(s["clients"], "client"),
        count(s["rounds"], "round"),
        f"training loss {number(s['train_loss'])}",
    ]
    if s.get("test_accuracy_train_rule") is not None:
        facts.append(f"test accuracy {percent(s['test_accuracy_train_rule'])}")
    lines = [f"<b>{escape(title_of(s))}</b>: {escape(', '.join(facts))}"]
    for one in s.get("clusters") or []:
        mine = [row["id"] for row in run.clients if row["cluster"] == str(one["cluster"])]
        shown = ", ".join(mine[:8]) + (f" and {len(mine) - 8} more" if len(mine) > 8 else "")
        lines.append(escape(f"cluster {one['cluster']}, {count(len(mine), 'client')}: {shown}"))
    lines.append("The page is too large to be shown here: save(folder), then 'ifca report folder'.")
    return "<div>" + "<br>".join(lines) + "</div>"


@contextmanager
def progress(verbose: bool) -> Iterator[list[Callback]]:
    """Who shows progress: nobody, a bar in a notebook, a bar on a terminal, plain lines elsewhere."""
    if not verbose:
        yield []
        return
    if (show := _notebook_display()) is not None:
        yield [NotebookBar(show)]
        return
    from rich.console import Console

    from ifca.report.terminal.progress_bar import watching

    console = Console(stderr=True)
    with watching(console, plain=not console.is_terminal) as watcher:
        yield [watcher]


class NotebookBar:
    """A bar under the cell, renewed after every round."""

    def __init__(self, show: Callable[[str], Callable[[str], None]]) -> None:
        """show: displays HTML, and returns what replaces it."""
        self._show = show
        self._title, self._rounds, self._done, self._seconds = "", 0, 0, 0.0
        self._renew: Callable[[str], None] = lambda _html: None

    def started(self, training: Training) -> None:
        """A new bar."""
        self._title, self._rounds = training.title, training.rounds
        self._done, self._seconds = len(training.history), 0.0
        self._renew = self._show(self._bar(""))

    def round_ended(self, record: Record) -> None:
        """One step of the bar."""
        from ifca.report.terminal.progress_bar import describe

        self._done, self._seconds = self._done + 1, self._seconds + record["seconds"]
        self._renew(self._bar(describe(record)))

    def finished(self, summary: dict[str, Any]) -> None:
        """The full bar says it."""

    def _bar(self, words: str) -> str:
        left = ""
        if 0 < self._done < self._rounds and self._seconds:
            left = f", about {duration(self._seconds / self._done * (self._rounds - self._done))} left"
        bar = f'<progress value="{self._done}" max="{self._rounds}"></progress>'
        text = f"{self._title}: round {self._done} of {self._rounds}{left}" + (f"; {words}" if words else "")
        return f"<div>{bar} {escape(text)}</div>"


def _notebook_display() -> Callable[[str], Callable[[str], None]] | None:
    """How HTML is shown in the notebook that this runs in; None: it runs in none."""
    if "IPython" not in sys.modules:  # a notebook has imported it
        return None
    import IPython.display  # type: ignore[import-not-found]

    shell = IPython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):  # IPython on a terminal has no kernel
        return None

    def show(html: str) -> Callable[[str], None]:
        handle = IPython.display.display(IPython.display.HTML(html), display_id=True)
        return lambda newer: handle.update(IPython.display.HTML(newer))

    return show
