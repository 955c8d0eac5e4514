"""What is told while units run: a line for each, and when it will be over."""

from __future__ import annotations

import time

from ifca.experiments.paper.frame import Line

SHOWN = ("test_accuracy", "test_accuracy_train_rule", "cluster_accuracy", "live_clusters", "success")


class Estimate:
    """Time left, from the units that were run: their mean time, shared by the workers."""

    def __init__(self, workers: int = 1) -> None:
        self._workers, self._began, self._run = workers, time.monotonic(), 0

    def describe(self, line: Line, done: int, of: int) -> str:
        """A finished unit in a few words."""
        self._run += 1
        left = (time.monotonic() - self._began) / self._run * (of - done)
        found = [f"{name} {line[name]:.4g}" for name in SHOWN if isinstance(line.get(name), float | int)]
        words = ", ".join(["diverged"] if "diverged" in line else found)
        what = f"{line['setting']}, {line['algorithm']}, seed {line['seed']}"
        return f"{done} of {of}: {what}: {words} ({line['seconds']:.1f} s; about {minutes(left)} left)"


def minutes(seconds: float) -> str:
    """In words."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
