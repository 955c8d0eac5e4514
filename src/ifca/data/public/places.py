"""Where the files of public data sets lie: a folder that is named, or IFCA_DATA, or the user's cache."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from ifca.core.errors import InvalidInput

VARIABLE = "IFCA_DATA"


def data_folders(option: Path | str | None = None) -> list[Path]:
    """Folders to look in, in order: the one that is named; else that of IFCA_DATA, then the cache."""
    if option is not None:
        return [Path(option).expanduser()]
    named = os.environ.get(VARIABLE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [*([Path(named).expanduser()] if named else []), cache / "ifca"]


def find(dataset: str, names: Sequence[str], folder: Path | str | None = None) -> Path | None:
    """The first file of one of these names, in a folder's subfolder of the data set or in itself."""
    for place in data_folders(folder):
        for inside in (place / dataset, place):
            for name in names:
                if (inside / name).exists():
                    return inside / name
    return None


def require(dataset: str, names: Sequence[str], folder: Path | str | None = None) -> Path:
    """The same, where it must be there; names: variants of one file."""
    file = find(dataset, names, folder)
    if file is None:
        raise missing(dataset, names[0], folder)
    return file


def missing(dataset: str, name: str, folder: Path | str | None) -> InvalidInput:
    """One sentence for a file that is nowhere."""
    places = data_folders(folder)
    others = "".join(f" nor in {place}" for place in places[1:])
    return InvalidInput(
        f"{places[0] / dataset / name}: no such file{others}; 'ifca data get {dataset}' fetches it, "
        f"or name the folder that holds it (data.folder, or {VARIABLE})"
    )


def damaged(dataset: str, file: Path, what: str) -> InvalidInput:
    """One sentence for a file that is cut off or altered."""
    return InvalidInput(f"{file}: {what}; delete it and 'ifca data get {dataset}' fetches it again")


def check_md5(dataset: str, file: Path, content: bytes, expected: str) -> None:
    """Refuse content that is not that of the public data set."""
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != expected:
        raise damaged(dataset, file, "its content is not that of the public data set (altered)")
