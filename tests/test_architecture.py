"""Dependencies go one way, sub-rooms included; files are short; no module name means two things."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

from ifca.methods.registry import BUILT_IN

SOURCE = Path(__file__).parent.parent / "src" / "ifca"
ORDER = (
    {"core"},
    {"data", "models"},
    {"methods"},
    {"engines"},
    {"training"},
    {"runs"},
    {"use", "paper", "bench", "federation", "report"},
    {"estimator"},
    {"cli"},
)
"""A room uses those before it, and itself; rooms of one step do not know each other."""
SUB_ROOMS = {
    "data.sources": {"data.public"},
    "engines.gram": {"engines.flower"},
    "engines.cuda": {"engines.flower", "engines.gram"},
    "engines.flower": {"engines.gram", "engines.cuda"},
    "report.page": {"report.paper", "report.terminal"},
    "report.paper": {"report.page", "report.terminal"},
}
"""Sub-rooms, and those that they must not use."""
CORE_LIBRARIES = {"torch", "numpy", "scipy", "sklearn", "pydantic"}
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = {
    ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for file in FILES
}


def imports(file: Path) -> set[str]:
    """All modules that a file imports; from ifca.x import y counts as ifca.x.y where that is a module."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name.removeprefix("ifca.") in MODULES else node.module for name in names}
    return found


def step(room: str) -> int:
    return next(i for i, rooms in enumerate(ORDER) if room in rooms)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_no_arrow_points_back(file: Path) -> None:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    room, sub = parts[0], ".".join(parts[:2])
    for module in imports(file):
        if module.startswith("ifca.") and len(parts) > 1:
            other = module.removeprefix("ifca.")
            there = other.split(".")[0]
            assert there == room or step(there) < step(room), f"{file.name} imports {module}"
            assert ".".join(other.split(".")[:2]) not in SUB_ROOMS.get(sub, set()), f"{file.name}: {module}"
        if room == "core" and not module.startswith("ifca"):
            top = module.split(".")[0]
            assert top in CORE_LIBRARIES or top in sys.stdlib_module_names, f"{file.name} imports {module}"


def test_every_room_has_its_place() -> None:
    rooms = {module.split(".")[0] for module in MODULES} - {"__init__", "__main__"}
    assert rooms == set().union(*ORDER)


def test_no_module_name_means_two_things() -> None:
    names = Counter(file.stem for file in FILES if not file.stem.startswith("__"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_nobody_outside_methods_asks_for_the_name_of_one(file: Path) -> None:
    """A comparison with a method's name, alone or in a list, is a special case that belongs into its file."""
    if file.relative_to(SOURCE).parts[0] == "methods":
        return
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            lists = [side.elts for side in sides if isinstance(side, (ast.Tuple, ast.List, ast.Set))]
            parts = [*sides, *(part for some in lists for part in some)]
            words = {part.value for part in parts if isinstance(part, ast.Constant)}
            assert not words & set(BUILT_IN), f"{file.name}, line {node.lineno}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_files_are_short(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 260
