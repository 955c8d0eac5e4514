"""rounds.jsonl: a line per round, and what a checkpoint says of it: neither goes on without the other."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from ifca.core.callbacks import Record
from ifca.core.errors import InvalidInput
from ifca.data.files import write_atomically
from ifca.data.formats.json_file import json_text
from ifca.data.formats.whole_file import read_whole
from ifca.data.jsonl import parse_jsonl
from ifca.runs.record_schema import RoundRecord

Mark = dict[str, Any]
"""The length of a log in bytes, and their SHA-256."""


class RoundLog:
    """The log of one training."""

    def __init__(self, file: Path) -> None:
        self.file, self._bytes, self._hash = file, 0, hashlib.sha256()

    def begin(self, done: int, mark: Mark | None) -> list[Record]:
        """The records of the rounds that the checkpoint holds; what came after it is cut off and done again.

        done: the checkpoint's rounds; mark: the log it was written with (None: of an older version). Nothing
        is changed where it does not fit.
        """
        content = read_whole(self.file) if self.file.exists() else b""
        lines = content.splitlines()
        if len(lines) < done:
            raise InvalidInput(
                f"{self.file}: has {len(lines)} rounds but the checkpoint has {done}; it was cut off"
            )
        kept = b"".join(line + b"\n" for line in lines[:done])
        records = parse_jsonl(self.file, kept, kind=RoundRecord)
        self._add(kept)
        if mark is not None and mark != self.mark():
            raise InvalidInput(
                f"{self.file}: is not the log that the checkpoint was written with; it was altered"
            )
        if content != kept:
            write_atomically(self.file, kept)
        return records

    def append(self, record: Record, *, sync: bool) -> None:
        """Add a round; sync: it is on the disk before this returns."""
        line = json_text(record)
        append_line(self.file, line, sync=sync)
        self._add(f"{line}\n".encode())

    def mark(self) -> Mark:
        """What a checkpoint says of the log so far."""
        return {"bytes": self._bytes, "sha256": self._hash.hexdigest()}

    def _add(self, content: bytes) -> None:
        self._bytes += len(content)
        self._hash.update(content)


def append_line(file: Path, line: str, *, sync: bool = False) -> None:
    """Add a line to a log."""
    try:
        with file.open("ab") as log:
            log.write(f"{line}\n".encode())
            if sync:
                log.flush()
                os.fsync(log.fileno())
    except OSError as failure:
        raise OSError(failure.errno, failure.strerror, str(file)) from failure
