"""runs.jsonl: a line per finished unit, on disk before the next one begins; never written twice."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ifca.core.errors import InvalidInput
from ifca.experiments.paper.frame import Line

RUNS = "runs.jsonl"


def read_lines(folder: Path, quick: bool = False) -> list[Line]:
    """The finished units of a folder; a last line that a kill has torn is not one."""
    file = folder / RUNS
    if not file.is_file():
        return []
    *whole, torn = file.read_text().split("\n")
    lines = [_parsed(file, number, text) for number, text in enumerate(whole, 1)]
    for number, line in enumerate(lines, 1):
        if bool(line.get("quick")) != quick:
            kind = "a quick" if line.get("quick") else "a full"
            raise InvalidInput(f"{file}: line {number} is of {kind} run; choose another --out")
    if torn:
        _cut(file, len(torn.encode()))
    return lines


def append(folder: Path, line: Line) -> None:
    """Add a finished unit."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / RUNS).open("a") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def key(line: Line) -> tuple[str, str, int]:
    """Which unit it is."""
    return line["setting"], line["algorithm"], line["seed"]


def _parsed(file: Path, number: int, text: str) -> Line:
    try:
        line: Line = json.loads(text)
    except json.JSONDecodeError as reason:
        raise InvalidInput(f"{file}: line {number} is not JSON ({reason}); remove it") from reason
    return line


def _cut(file: Path, torn: int) -> None:
    with file.open("r+b") as content:
        content.truncate(file.stat().st_size - torn)
