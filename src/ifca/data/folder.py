"""A folder with one .npz file per client: x, y, optionally x_test, y_test and cluster."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ifca.core.errors import InvalidInput
from ifca.data.check import arrays
from ifca.data.clients import Client
from ifca.data.federation import Federation


def read_folder(folder: Path, classes: int | None = None) -> Federation:
    """All .npz files of a folder, in order of their names; a file's name is its client's id."""
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: no such folder of client files")
    files = sorted(folder.glob("*.npz"))
    if not files:
        raise InvalidInput(f"{folder}: the folder has no .npz file (one per client is expected)")
    try:
        return Federation.from_clients([read_client(file) for file in files], classes)
    except InvalidInput as reason:
        named = str(reason).startswith(str(folder))
        raise reason if named else InvalidInput(f"{folder}: {reason}") from reason


def read_client(file: Path) -> Client:
    """One client's file; a file that is cut off, altered or of another kind is named in the complaint."""
    content = _load(file)
    missing = [name for name in ("x", "y") if name not in content]
    if missing:
        raise InvalidInput(
            f"{file}: has no array {missing[0]} (found: {', '.join(sorted(content)) or 'nothing'})"
        )
    unknown = sorted(set(content) - {"x", "y", "x_test", "y_test", "cluster"})
    if unknown:
        raise InvalidInput(f"{file}: unknown array {unknown[0]} (known: x, y, x_test, y_test, cluster)")
    x, y = arrays(f"{file}", content["x"], content["y"])
    x_test, y_test = content.get("x_test"), content.get("y_test")
    if x_test is not None or y_test is not None:
        x_test, y_test = arrays(f"{file}, test part", x_test, y_test)
    cluster = content.get("cluster")
    if cluster is not None and (cluster.size != 1 or cluster.dtype.kind not in "iu"):
        raise InvalidInput(f"{file}: cluster must be one whole number")
    return Client(x, y, x_test, y_test, file.stem, None if cluster is None else int(cluster.item()))


def write_client(file: Path, client: Client) -> None:
    """The inverse of read_client."""
    content = {name: getattr(client, name) for name in ("x", "y", "x_test", "y_test", "cluster")}
    given = {name: np.asarray(value) for name, value in content.items() if value is not None}
    np.savez(file, **given)  # type: ignore[arg-type]


def _load(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise InvalidInput(f"{file}: no such file")
    try:
        with file.open("rb") as raw, np.load(raw, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, AttributeError, KeyError, TypeError) as reason:
        raise InvalidInput(f"{file}: not a readable .npz file ({reason}); it may be cut off") from reason
