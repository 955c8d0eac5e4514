"""Logs with a JSON object in each line: read whole, read as they grow, added to.

A kill may leave half a line at the end of a log; that one does not count. Any other line that is no object
is damage.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ifca.core.errors import InvalidInput

Line = dict[str, Any]
ALTERED = "the file was altered"


def read_jsonl(file: Path, advice: str = ALTERED) -> list[Line]:
    """All lines of a log; none where there is no file. advice: how the sentence about a damaged line ends."""
    content = file.read_bytes() if file.is_file() else b""
    return parse_jsonl(file, content[: _end(content)], advice=advice)


def parse_jsonl(file: Path, whole: bytes, start: int = 0, advice: str = ALTERED) -> list[Line]:
    """Whole lines as objects. start: the byte of the log that they were read from."""

    def parsed(place: int, text: bytes) -> Line:
        try:
            return _object(text)
        except ValueError as reason:
            number = 1 + place + file.read_bytes()[:start].count(b"\n")
            raise InvalidInput(f"{file}: line {number} is no JSON object ({reason}); {advice}") from None

    return [parsed(place, text) for place, text in enumerate(whole.splitlines())]


def append_jsonl(file: Path, line: Line) -> None:
    """Add a line to a log, on the disk when this returns; half a line at its end is removed first."""
    text = (json.dumps(line, allow_nan=False) + "\n").encode()
    try:
        with file.open("a+b") as log:
            log.seek(0)
            before = log.read()
            before = before[: _end(before)]
            log.truncate(len(before))
            log.write(b"\n" + text if before and not before.endswith(b"\n") else text)
            log.flush()
            os.fsync(log.fileno())
    except OSError as failure:
        raise OSError(failure.errno, failure.strerror, str(file)) from failure


def _end(content: bytes) -> int:
    """Where the last whole line ends; one without a line's end may be whole, as some editors leave it."""
    last = content.rfind(b"\n") + 1
    try:
        _object(content[last:])
    except ValueError:
        return last
    return len(content)


def _object(text: bytes) -> Line:
    found = json.loads(text.decode())
    if not isinstance(found, dict):
        raise ValueError(f"it is a {type(found).__name__}")
    return found
