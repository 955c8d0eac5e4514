"""Progress of a run that another process trains, read from its folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from ifca.core.callbacks import Callback, Record, Training
from ifca.runs.config import Config, config_dict
from ifca.runs.results import finished_summary
from ifca.runs.run_folder import CONFIG, FAULTS, ROUNDS, open_directory


class Follower:
    """Tells a watcher about each new line of the logs of a run's parts, and says what went wrong."""

    def __init__(self, out: Path, config: Config, callback: Callback, say: Callable[[str], None]) -> None:
        self.out, self.config, self.callback, self.say = out, config, callback, say
        self._read: dict[Path, int] = {}
        self._stage: Path | None = None
        self._heard = time.monotonic()
        for log in (*self._logs(), out / FAULTS):  # of an earlier part of the run
            self._read[log] = log.stat().st_size if log.exists() else 0

    def look(self) -> None:
        """Read what is new."""
        for fault in self._new(self.out / FAULTS):
            self.say(f"{fault['kind']}: client {fault['client']} ({fault['detail']})")
        for log in self._logs():
            for record in self._new(log):
                self._tell(log, record)

    def finish(self) -> None:
        """Tell what came out, of the run and of its baselines."""
        for folder in (self.out, *sorted(self.out.glob("baselines/*"))):
            if (summary := finished_summary(folder)) is not None:
                self.callback.finished(summary)

    def heard(self) -> None:
        """Start counting silence again."""
        self._heard = time.monotonic()

    def silent_for(self) -> float:
        """Seconds since the last round ended."""
        return time.monotonic() - self._heard

    def _new(self, log: Path) -> list[Record]:
        """The lines of a log that were not read yet."""
        if not log.exists():
            return []
        with log.open("rb") as file:
            file.seek(min(self._read.get(log, 0), log.stat().st_size))
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read[log] = self._read.get(log, 0) + len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def _logs(self) -> list[Path]:
        return (
            sorted(self.out.rglob(ROUNDS), key=lambda log: log.stat().st_mtime) if self.out.exists() else []
        )

    def _tell(self, log: Path, record: Record) -> None:
        if log != self._stage:
            owner = log.parent if (log.parent / CONFIG).exists() else log.parent.parent.parent
            config = open_directory(owner) if (owner / CONFIG).exists() else self.config
            self._stage = log
            before = [json.loads(line) for line in log.read_text().splitlines()[: record["round"]]]
            self.callback.started(Training(config.algorithm, config.rounds, before, config_dict(config)))
        self.callback.round_ended(record)
        self.heard()
