"""Logs with a JSON object in each line: read whole, read as they grow, added to.

A kill may leave half a line at the end of a log; that one does not count. Any other line that is no object
is damage.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

from ifca.core.errors import Unreadable
from ifca.data.formats.json_file import parse_json
from ifca.data.formats.whole_file import read_whole

Line = dict[str, Any]
ALTERED = "the file was altered"


def read_jsonl(file: Path, advice: str = ALTERED, kind: type = dict) -> list[Line]:
    """All lines of a log; none where there is no file. advice: how the sentence about a damaged line ends.

    kind: what a line must be, as of parse_json.
    """
    content = read_whole(file) if file.exists() else b""
    return parse_jsonl(file, content[: _end(content)], advice=advice, kind=kind)


def parse_jsonl(
    file: Path, whole: bytes, start: int = 0, advice: str = ALTERED, kind: type = dict
) -> list[Line]:
    """Whole lines as objects. start: the byte of the log that they were read from."""
    found, damage = readable_jsonl(file, whole, start, advice, kind)
    if damage is not None:
        raise Unreadable(damage)
    return found


def readable_jsonl(
    file: Path, whole: bytes, start: int = 0, advice: str = ALTERED, kind: type = dict
) -> tuple[list[Line], str | None]:
    """The lines before the first that is damaged, and what is wrong with that; None: nothing."""
    found: list[Line] = []
    try:
        found.extend(_object(text, kind) for text in whole.splitlines())
    except Unreadable as reason:
        number = 1 + len(found) + (read_whole(file)[:start].count(b"\n") if start else 0)
        why = str(reason).removeprefix(": ").removesuffix("; ")
        what = f"is no JSON object ({why})" if kind is dict else f"is damaged ({why})"
        return found, f"{file}: line {number} {what}; {advice}"
    return found, None


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
        _object(content[last:], dict)
    except Unreadable:
        return last
    return len(content)


def _object(text: bytes, kind: type) -> Line:
    return cast(Line, parse_json(text, "", kind, ""))
