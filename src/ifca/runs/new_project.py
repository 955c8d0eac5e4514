"""A small project to begin with: config, model, data; it runs as it stands."""

from __future__ import annotations

from pathlib import Path

from ifca.core.errors import InvalidInput
from ifca.data.files import write_atomically

TEMPLATE = Path(__file__).parent / "project"
FILES = ("config.toml", "data.py", "model.py", "README.md")


def write_project(folder: Path) -> list[Path]:
    """Copy the project into a new or empty folder; returns its files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder}: already holds something; choose a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        write_atomically(folder / name, (TEMPLATE / name).read_bytes())
    return [folder / name for name in FILES]
