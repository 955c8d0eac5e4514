"""LEAF's output: JSON files of users, their numbers of samples and their data, in a train and a test part."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from ifca.core.errors import InvalidInput, Unreadable
from ifca.data.clients import Client
from ifca.data.formats.json_file import ALTERED, parse_json
from ifca.data.formats.whole_file import read_whole, unpacked
from ifca.data.problems import Complain, Source, refuse
from ifca.data.sources.columns import Columns, with_test_part

Samples = tuple[NDArray[Any], NDArray[Any]]
"""x [n, features] and y [n] of one user."""
_PART = re.compile(r"_(train|test)[_.]")
AGAIN = "let LEAF write it again"


class UserData(TypedDict):
    """The samples of one user."""

    x: list[Any]
    y: list[Any]


class LeafFile(TypedDict):
    """What LEAF writes."""

    users: list[str]
    num_samples: list[int]
    user_data: dict[str, UserData]


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
    if columns.kind == "regression":
        train, test = _as_targets(train), _as_targets(test)
    clients = []
    for user in sorted({*train, *test}):  # LEAF's split by user has test data of other users than training
        (x, y), (x_test, y_test) = (part.get(user, (None, None)) for part in (train, test))
        client = Client(x, y, x_test, y_test, user, source=Source(f"{folder}, user {user}"))
        clients.append(with_test_part(client, columns))
    return clients


def _as_targets(users: dict[str, Samples]) -> dict[str, Samples]:
    numbers = {user for user, (_, y) in users.items() if y.dtype.kind in "fiub"}  # others are named later
    return {user: (x, y.astype(np.float64) if user in numbers else y) for user, (x, y) in users.items()}


def _is_json(file: Path) -> bool:
    return file.name.endswith((".json", ".json.gz"))


def _read(file: Path) -> dict[str, Samples]:
    content = parse_json(unpacked(file, read_whole(file)), str(file), LeafFile, f"{ALTERED}: {AGAIN}")
    users, counts, data = content["users"], content["num_samples"], content["user_data"]
    twice = next((user for user, count in Counter(users).items() if count > 1), None)
    if twice is not None:
        raise Unreadable(f"{file}: users lists {twice!r} twice; {AGAIN}")
    if len(counts) != len(users):
        raise Unreadable(f"{file}: users has {len(users)} names, num_samples {len(counts)} numbers; {AGAIN}")
    for odd in sorted(set(users) ^ data.keys()):
        where = "user_data has no" if odd in users else "users does not list the"
        raise Unreadable(f"{file}: {where} user {odd!r}; {AGAIN}")
    return {user: _samples(file, user, data[user], n) for user, n in zip(users, counts, strict=True)}


def _samples(file: Path, user: str, data: UserData, n: int) -> Samples:
    try:
        x, y = np.asarray(data["x"]), np.asarray(data["y"])
    except ValueError:
        raise Unreadable(f"{file}: user {user!r} has samples of unlike shape; {AGAIN}") from None
    if (len(x) if x.ndim else -1) != n or (len(y) if y.ndim else -1) != n:
        found = f"{len(data['x'])} samples and {len(data['y'])} labels instead of {n}"
        raise Unreadable(f"{file}: user {user!r} has {found}; {AGAIN}")
    if n and x.dtype.kind not in "fiu":
        raise Unreadable(f"{file}: user {user!r}: x must be numbers; {AGAIN}")
    with np.errstate(over="ignore"):  # what becomes infinite is refused with the others
        return x.astype(np.float32), y
