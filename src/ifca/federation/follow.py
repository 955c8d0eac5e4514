"""Progress of a run that another process trains, read from its folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from ifca.core.callbacks import Callback, Record, Training
from ifca.data.jsonl import read_jsonl
from ifca.engines.flower.faults import printable
from ifca.federation.apps import SAID
from ifca.federation.gate import TURNED_AWAY
from ifca.runs.auto_rounds import rounds_of
from ifca.runs.config import Config, config_dict
from ifca.runs.run_folder import CONFIG, FAULTS, PRIVATE, ROUNDS, open_directory
from ifca.runs.summary_file import finished_summary


class LogReader:
    """The new lines of a log that another process writes, and shortens when it goes back to a checkpoint."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._position = 0  # bytes that were read: whole lines
        self._file = -1  # inode: a shortened log is a new file
        self._lines: list[int] = []  # a hash of each line that was read

    def new_lines(self) -> tuple[list[str], bool]:
        """Whole lines that were not read yet, and whether the log was shortened since.

        What a shortened log has kept is not told again; what differs from before is new.
        """
        if not self.log.exists():
            return [], False
        with self.log.open("rb") as file:
            status = os.fstat(file.fileno())
            shortened = status.st_size < self._position or self._file not in (-1, status.st_ino)
            self._file = status.st_ino
            file.seek(0 if shortened else self._position)
            text = file.read()
        lines = text[: text.rfind(b"\n") + 1].splitlines(keepends=True)
        if shortened:
            kept = 0
            while kept < min(len(lines), len(self._lines)) and hash(lines[kept]) == self._lines[kept]:
                kept += 1
            self._position, self._lines = sum(map(len, lines[:kept])), self._lines[:kept]
            lines = lines[kept:]
        self._position += sum(map(len, lines))
        self._lines += map(hash, lines)
        return [line.decode() for line in lines], shortened


def _fault(told: dict[str, str]) -> str:
    return f"{told['kind']}: client {told['client']} ({told['detail']})"


def _said(told: dict[str, str]) -> str:
    return told["said"]


def _turned_away(told: dict[str, str]) -> str:
    return f"turned away: {told['from']} ({told['why']})"


class Follower:
    """Tells a callback about each new round of a run and its baselines, and says what went wrong."""

    def __init__(self, out: Path, config: Config, callback: Callback, say: Callable[[str], None]) -> None:
        self.out, self.config, self.callback, self.say = out, config, callback, say
        self._readers: dict[Path, LogReader] = {}
        self._current: Path | None = None  # the log of the training that was told of last
        work = out / PRIVATE
        self._told = {out / FAULTS: _fault, work / SAID: _said, work / TURNED_AWAY: _turned_away}
        for log in (*self._logs(), *self._told):  # of an earlier part of the run
            self._reader(log).new_lines()

    def read_new(self) -> None:
        """Read and tell what is new."""
        for file, sentence in self._told.items():
            for line in self._reader(file).new_lines()[0]:
                self.say(printable(sentence(json.loads(line))))
        for log in self._logs():
            lines, shortened = self._reader(log).new_lines()
            if shortened and log == self._current:
                self._current = None  # its rounds go on from an earlier one
            for line in lines:
                self._tell(log, json.loads(line))

    def finish(self) -> None:
        """Tell what came out, of the run and of its baselines."""
        for folder in (self.out, *sorted(self.out.glob("baselines/*"))):
            if (summary := finished_summary(folder)) is not None:
                self.callback.finished(summary)

    def _reader(self, log: Path) -> LogReader:
        return self._readers.setdefault(log, LogReader(log))

    def _logs(self) -> list[Path]:
        """The logs of all trainings; that of the best restart is copied to its run at the end."""
        logs = [log for log in self.out.rglob(ROUNDS) if not (log.parent / "restarts").exists()]
        return sorted(logs, key=lambda log: log.stat().st_mtime)

    def _tell(self, log: Path, record: Record) -> None:
        if log != self._current:
            owner = log.parent if (log.parent / CONFIG).exists() else log.parent.parent.parent
            config = open_directory(owner) if (owner / CONFIG).exists() else self.config
            self._current = log
            before = read_jsonl(log)[: record["round"]]
            most = rounds_of(vars(config))["rounds"]
            self.callback.started(Training(config.algorithm, most, before, config_dict(config)))
        self.callback.round_ended(record)
