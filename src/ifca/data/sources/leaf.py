"""LEAF's output: JSON files of users, their numbers of samples and their data, in a train and a test part."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data.clients import Client
from ifca.data.problems import Complain, Source, refuse
from ifca.data.sources.columns import Columns, with_test_part

Samples = tuple[NDArray[Any], NDArray[Any]]
"""x [n, features] and y [n] of one user."""
_PART = re.compile(r"_(train|test)[_.]")


def leaf_files(folder: Path) -> dict[str, list[Path]]:
    """The files of each part: in train/ and test/, or in one folder, _train_ and _test_ in their names."""
    parts: dict[str, list[Path]] = {"train": [], "test": []}
    for part, files in parts.items():
        if (folder / part).is_dir():
            files += sorted(file for file in (folder / part).iterdir() if _is_json(file))
    if any(parts.values()) or not folder.is_dir():
        return parts
    for file in sorted(folder.iterdir()):
        if _is_json(file) and (found := _PART.search(file.name)):
            parts[found[1]].append(file)
    return parts


def read_leaf(files: list[Path]) -> dict[str, Samples]:
    """User -> samples, of all files of one part."""
    users: dict[str, Samples] = {}
    for file in files:
        for user, samples in _read(file).items():
            if user in users:
                raise InvalidInput(f"{file}: user {user} stands in another file of this part too")
            users[user] = samples
    return users


def leaf_clients(folder: Path, columns: Columns, complain: Complain = refuse) -> list[Client]:
    """A client per user of a folder of LEAF's; columns: kind and test_share, where LEAF split nothing off."""
    files = leaf_files(folder)
    if not files["train"]:
        complain(f"{folder}: no training files of LEAF's there (train/*.json)")
        return []
    try:
        train, test = (read_leaf(files[part]) for part in ("train", "test"))
    except InvalidInput as reason:
        complain(str(reason))
        return []
    clients = []
    for user, (x, y) in sorted(train.items()):
        x_test, y_test = test.get(user, (None, None))
        if columns.kind == "regression":
            y, y_test = y.astype(np.float64), None if y_test is None else y_test.astype(np.float64)
        where = f"{folder}, user {user}"
        client = Client(x, y, x_test, y_test, user, source=Source(where))
        clients.append(with_test_part(client, columns))
    return clients


def _is_json(file: Path) -> bool:
    return file.name.endswith((".json", ".json.gz"))


def _read(file: Path) -> dict[str, Samples]:
    try:
        raw = file.read_bytes()
        content = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        return {
            user: _samples(content["user_data"][user], n)
            for user, n in zip(content["users"], content["num_samples"], strict=True)
        }
    except (EOFError, zlib.error, OSError, ValueError, KeyError, TypeError) as reason:
        why = f"no {reason}" if isinstance(reason, KeyError) else reason
        raise InvalidInput(
            f"{file}: not a whole file of LEAF's ({why}); cut off or altered: let LEAF write it again"
        ) from reason


def _samples(data: dict[str, Any], n: int) -> Samples:
    x, y = np.asarray(data["x"], np.float32), np.asarray(data["y"])
    if len(x) != n or len(y) != n:
        raise ValueError(f"{len(x)} samples and {len(y)} labels instead of {n}")
    return x, y
