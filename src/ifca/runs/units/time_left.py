"""What is told while units run: a line for each, when it will be over, and a sentence where it was ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ifca.core.errors import IFCAError, Interrupted
from ifca.runs.units.unit import Line

SHOWN = (
    *("test_accuracy", "test_accuracy_train_rule", "cluster_accuracy", "live_clusters", "success"),
    *("floor", "identity_error", "accuracy", "ari", "live"),
)


class Estimate:
    """Time left, from the units that were run: their mean time, shared by the workers."""

    def __init__(self) -> None:
        self._began, self._run = time.monotonic(), 0

    def left(self, done: int, of: int) -> str:
        """To be asked once after each unit."""
        self._run += 1
        return f"about {minutes((time.monotonic() - self._began) / self._run * (of - done))} left"

    def describe(self, line: Line, done: int, of: int) -> str:
        """A finished unit in a line, with the time left."""
        return f"{done} of {of}: {self.unit(line)} ({line['seconds']:.1f} s; {self.left(done, of)})"

    @staticmethod
    def unit(line: Line) -> str:
        """A finished unit in a few words."""
        found = [f"{name} {line[name]:.4g}" for name in SHOWN if isinstance(line.get(name), float | int)]
        words = ", ".join(["diverged"] if "diverged" in line else found)
        what = f"{line['setting']}, {line['algorithm']}, seed {line['seed']}"
        return f"{what}: {words}" if words else what


def minutes(seconds: float) -> str:
    """In words."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


@contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the same command goes on after the last finished unit") from None


@contextmanager
def main_of_units() -> Iterator[None]:
    """A main without the command line's: what goes wrong ends it with one sentence."""
    try:
        with resumable():
            yield
    except (IFCAError, OSError) as reason:
        sys.stderr.write(f"error: {reason}\n")
        sys.exit(reason.code if isinstance(reason, IFCAError) else IFCAError.code)
