"""What Python loads at the start of every process of the soak: short pauses, and a disk that can be slow.

A SuperNode asks for messages every three seconds, and what is on its way is waited for by the second, so
2,000 rounds would take hours in which nothing happens; here both are fifths of a second. While the file named
by SLOW_DISK is there, every fsync takes half a second.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ASKS = "flwr.supernode.start_client_internal"
PULLS = "flwr.supercore.inflatable.inflatable_utils"
PAUSE, DELAY = 0.2, 0.5  # seconds
os.environ["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = str(PAUSE)
SLOW = Path(os.environ.get("SLOW_DISK", "/nowhere"))


def short_pauses() -> None:
    """Let a SuperNode ask again soon."""
    sleep = time.sleep
    names = {name: getattr(time, name) for name in dir(time) if not name.startswith("_")}
    names["sleep"] = lambda seconds: sleep(min(seconds, PAUSE))
    sys.modules[ASKS].time = SimpleNamespace(**names)  # type: ignore[attr-defined]


def short_waits() -> None:
    """Let parts of a message that are on their way be asked for again soon."""
    sys.modules[PULLS].pull_objects.__kwdefaults__["initial_backoff"] = PAUSE


class AfterImport(importlib.abc.MetaPathFinder):
    """Changes a module as soon as it is there."""

    def __init__(self, name: str, change: Callable[[], None]) -> None:
        self.name, self.change = name, change

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """As the others find it, with a loader that changes it in the end."""
        del path, target
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def loaded(module: Any) -> None:
            load(module)
            self.change()

        spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec


def slow_fsync(fsync: Any) -> Any:
    """One that waits while the disk is slow."""

    def waiting(descriptor: int) -> None:
        if SLOW.exists():
            time.sleep(DELAY)
        fsync(descriptor)

    return waiting


sys.meta_path[:0] = [AfterImport(ASKS, short_pauses), AfterImport(PULLS, short_waits)]
os.fsync = slow_fsync(os.fsync)
