"""runs.jsonl: a line per finished unit, on disk before the next one begins; never written twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import NotRequired, TypedDict

from ifca.core.errors import InvalidInput
from ifca.data.jsonl import append_jsonl, read_jsonl
from ifca.runs.units.unit import Line

RUNS = "runs.jsonl"


class UnitLine(TypedDict):
    """A finished unit; what was measured is for the experiment to say."""

    setting: str
    algorithm: str
    seed: int
    seconds: float
    versions: dict[str, Any]
    quick: NotRequired[bool | None]
    diverged: NotRequired[Any]


def read_lines(folder: Path, quick: bool = False) -> list[Line]:
    """The finished units of a folder; a last line that a kill has torn is not one."""
    file = folder / RUNS
    first: dict[tuple[str, str, int], int] = {}
    lines = read_jsonl(file, "remove it", UnitLine)
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
    append_jsonl(prepared(folder), line)


def prepared(folder: Path) -> Path:
    """The file of a folder, which can be written to; it is better to know that before hours of training."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RUNS).open("ab").close()
    return folder / RUNS


def key(line: Line) -> tuple[str, str, int]:
    """Which unit it is."""
    return line["setting"], line["algorithm"], line["seed"]
