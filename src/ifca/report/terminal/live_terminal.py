"""A run, live on the terminal: for those who are over ssh."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ifca.report.ending_words import rejected_sentences
from ifca.report.live_run import LiveRun
from ifca.report.page.axes import chosen
from ifca.report.page.costs import in_words
from ifca.report.palette import colour
from ifca.report.read_run import RunFolder
from ifca.report.terminal.status import last_round, pace, status
from ifca.report.words import number, percent, title_of

BLOCKS = "▁▂▃▄▅▆▇█"
EVENTS = 4  # the last ones


def watch_terminal(console: Console, folder: Path, pause: float = 0.5) -> None:
    """Until the run is finished: a live view on a terminal, plain lines elsewhere."""
    looks = _looks(LiveRun(folder), pause)
    if not console.is_terminal:
        for line in _lines(looks):
            console.print(line, soft_wrap=True, highlight=False, markup=False)
        return
    with Live(console=console, auto_refresh=False) as live:
        for run in looks:
            live.update(view(run), refresh=True)


def view(run: RunFolder) -> Group:
    """The run on one screen."""
    data = (run.summary.get("config") or {}).get("data", {}).get("name", run.path.name)
    title = Text(f"{data}, {title_of(run.summary)}", "bold")
    bar = Table.grid()
    bar.add_row(ProgressBar(total=max(1, run.planned), completed=len(run.rounds), width=60))
    parts: list[Text | Table] = [title, Text(status(run)), bar]
    if run.rounds:
        parts += [_curves(run), _sizes(run)]
    for event in (run.summary.get("events") or [])[-EVENTS:]:
        parts.append(Text(f"round {event['round'] + 1}: {in_words(event)}", "dim"))
    for sentence in rejected_sentences(run.summary):
        parts.append(Text(sentence, "yellow"))
    if run.faults:
        last = run.faults[-1]
        parts.append(
            Text(f"{len(run.faults)} faults, the last: client {last['client']}, {last['kind']}", "yellow")
        )
    return Group(*parts)


def sparkline(values: list[float], width: int = 40) -> str:
    """A curve in one line of blocks."""
    shown = [values[i] for i in chosen(len(values), width)]
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    return "".join(BLOCKS[min(7, int(8 * (value - low) / span))] for value in shown)


def _curves(run: RunFolder) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for key, name in (
        ("test_accuracy", "test accuracy"),
        ("test_loss", "test loss"),
        ("train_loss", "training loss"),
    ):
        values = [record[key] for record in run.rounds if record.get(key) is not None]
        if values and not (key == "test_loss" and run.summary["test_accuracy"] is not None):
            show = percent if key == "test_accuracy" else number
            table.add_row(name, sparkline(values), show(values[-1]))
    return table


def _sizes(run: RunFolder) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    last = run.rounds[-1]
    accuracy, loss = last.get("cluster_test_accuracy"), last.get("cluster_train_loss")
    for j, size in enumerate(last["cluster_sizes"] or []):
        if size:
            bar = Text("█" * max(1, round(30 * size / last["participants"])), colour(j))
            scores = percent(accuracy[j]) if accuracy and accuracy[j] is not None else ""
            table.add_row(f"cluster {j}", f"{size:,}", bar, f"loss {number(loss[j])}" if loss else "", scores)
    return table


def _lines(looks: Iterator[RunFolder]) -> Iterator[str]:
    """A line for every look that brings something new."""
    told = ""
    for run in looks:
        line = f"{status(run)} {last_round(run)}".strip() if run.state != "running" else _running(run)
        if line != told:
            told = line
            yield line


def _running(run: RunFolder) -> str:
    if not run.rounds:
        return status(run)
    return f"round {len(run.rounds)}/{run.planned}: {last_round(run)}; {pace(run)}"


def _looks(run: LiveRun, pause: float) -> Iterator[RunFolder]:
    """The run whenever it has changed, until it is finished."""
    seen = None
    while True:
        version = run.version()
        if version != seen:
            seen = version
            found = run.read()
            yield found
            if found.state == "finished":
                return
        time.sleep(pause)
