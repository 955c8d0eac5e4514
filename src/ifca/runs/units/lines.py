"""runs.jsonl: a line per finished unit, on disk before the next one begins; never written twice."""

from __future__ import annotations

from pathlib import Path

from ifca.core.errors import InvalidInput
from ifca.data.jsonl import append_jsonl, read_jsonl
from ifca.runs.units.unit import Line

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
    first: dict[tuple[str, str, int], int] = {}
    lines = read_jsonl(file, advice="remove it")
    for number, line in enumerate(lines, 1):
        wrong = [name for name, kind in NEEDED.items() if not isinstance(line.get(name), kind)]
        if wrong:
            what = f"is no finished unit (its {wrong[0]} is missing or wrong)"
            raise InvalidInput(f"{file}: line {number} {what}; remove it")
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
