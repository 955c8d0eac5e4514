"""Dependencies go one way: core <- data, models <- engines <- experiments, report <- cli."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "ifca"
ALLOWED = {
    "core": {"core"},
    "data": {"core", "data"},
    "models": {"core", "models"},
    "engines": {"core", "data", "models", "engines"},
    "experiments": {"core", "data", "models", "engines", "experiments"},
    "report": {"core", "data", "report"},
    "estimator": {"core", "data", "models", "engines"},
    "cli_data": {"core", "data", "report"},
    "cli_see": {"core", "report"},
}
CORE_LIBRARIES = {"torch", "numpy", "scipy", "sklearn"}
FILES = sorted(SOURCE.rglob("*.py"))


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_no_arrow_points_back(file: Path) -> None:
    room = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    for module in imports(file):
        if module.startswith("ifca.") and room in ALLOWED:
            assert module.split(".")[1] in ALLOWED[room], f"{file.name} imports {module}"
        if room == "core" and not module.startswith("ifca"):
            top = module.split(".")[0]
            assert top in CORE_LIBRARIES or top in sys.stdlib_module_names, f"{file.name} imports {module}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_files_are_short(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 260
