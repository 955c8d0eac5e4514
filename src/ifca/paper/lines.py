"""runs.jsonl: a line per finished unit, on disk before the next one begins; never written twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ifca.core.errors import InvalidInput
from ifca.paper.frame import Line

RUNS = "runs.jsonl"
NEEDED: dict[str, type | tuple[type, ...]] = {
    "setting": str,
    "algorithm": str,
    "seed": int,
    "seconds": (int, float),
    "versions": dict,
}


def read_lines(folder: Path, quick: bool = False) -> list[Line]:
    """The finished units of a folder; a last line that a kill has torn is not one."""
    file = folder / RUNS
    if not file.is_file():
        return []
    try:
        *whole, last = file.read_text("utf-8").split("\n")
    except UnicodeDecodeError as reason:
        raise InvalidInput(f"{file}: not text ({reason})") from None
    texts = whole if _torn(last) else [*whole, last]
    first: dict[tuple[str, str, int], int] = {}
    lines = [_parsed(file, number, text) for number, text in enumerate(texts, 1)]
    for number, line in enumerate(lines, 1):
        if bool(line.get("quick")) != quick:
            kind = "a quick" if line.get("quick") else "a full"
            raise InvalidInput(f"{file}: line {number} is of {kind} run; choose another --out")
        if first.setdefault(key(line), number) != number:
            raise InvalidInput(
                f"{file}: line {number} is the unit of line {first[key(line)]}; remove one of them"
            )
    return lines


def append(folder: Path, line: Line) -> None:
    """Add a finished unit, after the last whole one."""
    text = (json.dumps(line, allow_nan=False) + "\n").encode()
    with prepared(folder).open("r+b") as file:
        before = file.read()
        last = before[before.rfind(b"\n") + 1 :]
        if _torn(last.decode(errors="replace")):
            file.truncate(file.seek(len(before) - len(last)))
        elif last:
            text = b"\n" + text
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def prepared(folder: Path) -> Path:
    """The file of a folder, which can be written to; it is better to know that before hours of training."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RUNS).open("ab").close()
    return folder / RUNS


def key(line: Line) -> tuple[str, str, int]:
    """Which unit it is."""
    return line["setting"], line["algorithm"], line["seed"]


def _torn(text: str) -> bool:
    """Whether a text without a line's end is no whole line (which it may be: editors take the end away)."""
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return True
    return False


def _parsed(file: Path, number: int, text: str) -> Line:
    try:
        line: Any = json.loads(text)
    except json.JSONDecodeError as reason:
        raise InvalidInput(f"{file}: line {number} is not JSON ({reason}); remove it") from None
    found: Line = line if isinstance(line, dict) else {}
    wrong = [name for name, kind in NEEDED.items() if not isinstance(found.get(name), kind)]
    if wrong:
        raise InvalidInput(
            f"{file}: line {number} is no finished unit (its {wrong[0]} is missing or wrong); remove it"
        )
    return found
