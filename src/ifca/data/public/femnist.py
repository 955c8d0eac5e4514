"""FEMNIST as LEAF cuts it: handwritten characters by writer, from LEAF's own files or packed into one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput, Unreadable
from ifca.data.clients import Client
from ifca.data.federation import Federation
from ifca.data.formats.npz_file import read_npz
from ifca.data.public.places import data_folders
from ifca.data.sources.leaf import Samples, leaf_files, read_leaf

CLASSES = 62  # digits, capital and small letters
SHA256 = {  # of packed files that are known; name them in results as the subset they are
    "femnist_leaf_395_writers.npz": "6f7453beb4c99f8c9f5e82965bd6b9269d8b5f0a15af227623f123249c5bda99"
}
Files = Literal["auto", "packed", "leaf"]
Parts = tuple[dict[str, Samples], dict[str, Samples]]
"""Writer -> images and labels, to train on and to test on."""


def femnist(folder: Path | str | None = None, *, min_images: int = 100, files: Files = "auto") -> Federation:
    """A client per writer with at least min_images images, split into training and test as LEAF split them.

    folder holds femnist/, or the files themselves: one packed femnist*.npz (x, y, writer, is_test), or LEAF's
    JSON files, .gz or not (None: IFCA_DATA, then the cache). files says which kind; auto: packed where there
    is one. Images are bytes [28, 28]; LEAF's value of a pixel is its byte / 255.
    """
    found = _found(folder, files)
    if found is None:
        absent = data_folders(folder)[0] / "femnist"
        kind = {"packed": "packed femnist*.npz", "leaf": "JSON files of LEAF's", "auto": "FEMNIST files"}[
            files
        ]
        raise InvalidInput(f"{absent}: no {kind} there; 'ifca data get femnist' says how to make them")
    place, packed = found
    train, test = _packed(packed) if packed else _leaf(place)
    clients = []
    for writer in sorted(train):
        x, y = train[writer]
        x_test, y_test = test.get(writer, (x[:0], y[:0]))
        if len(x) + len(x_test) >= min_images:
            tested = len(x_test) > 0
            own = Client(x, y, x_test if tested else None, y_test if tested else None, writer)
            clients.append(own)
    if not clients:
        raise InvalidInput(f"{place}: no writer has {min_images} images; lower data.min_images")
    return Federation.from_clients(clients, classes=CLASSES)


def femnist_place(folder: Path | str | None = None) -> Path | None:
    """The folder that holds FEMNIST, if there is one."""
    found = _found(folder, "auto")
    return None if found is None else found[0]


def _found(folder: Path | str | None, files: Files) -> tuple[Path, Path | None] | None:
    """The folder that holds FEMNIST, and the packed file where that is to be read."""
    for given in data_folders(folder):
        for inside in (given / "femnist", given):
            packed = sorted(inside.glob("femnist*.npz")) if files != "leaf" else []
            if packed:
                return inside, packed[0]
            if files != "packed" and any(leaf_files(inside).values()):
                return inside, None
    return None


def _packed(file: Path) -> Parts:
    if file.name in SHA256 and hashlib.sha256(file.read_bytes()).hexdigest() != SHA256[file.name]:
        raise _damaged(file, "its content is not that of the packed data set (cut off or altered)")
    try:
        content = read_npz(file)
        x, y, writer, is_test = (content[name] for name in ("x", "y", "writer", "is_test"))
    except (Unreadable, KeyError) as reason:
        raise _damaged(file, f"not a packed data set ({reason})") from reason
    if x.dtype != np.uint8 or x.shape[1:] != (28, 28) or not len(x) == len(y) == len(writer) == len(is_test):
        raise _damaged(file, f"x of type {x.dtype} and shape {x.shape} for {len(y)} labels")
    return _by_writer(x, y, writer, is_test == 0), _by_writer(x, y, writer, is_test != 0)


def _damaged(file: Path, what: str) -> InvalidInput:
    return InvalidInput(f"{file}: {what}; delete it: 'ifca data get femnist' says how to make it again")


def _by_writer(
    x: NDArray[Any], y: NDArray[Any], writer: NDArray[Any], chosen: NDArray[np.bool_]
) -> dict[str, Samples]:
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(writer[rows], kind="stable")]
    names, start = np.unique(writer[rows], return_index=True)
    mine = np.split(rows, start[1:])
    return {str(name): (x[part], y[part]) for name, part in zip(names, mine, strict=True)}


def _leaf(folder: Path) -> Parts:
    files = leaf_files(folder)
    for part, found in files.items():
        if not found:
            raise InvalidInput(f"{folder}: LEAF's {part} files are not there, only its other part")
    train, test = (
        {writer: _pixels(folder, writer, samples) for writer, samples in read_leaf(files[part]).items()}
        for part in ("train", "test")
    )
    return train, test


def _pixels(folder: Path, writer: str, samples: Samples) -> Samples:
    """LEAF's numbers in [0, 1] as the bytes they come from."""
    x, y = samples
    exact = np.rint(x * 255)
    if (
        x.ndim != 2
        or x.shape[1] != 784
        or np.abs(x * 255 - exact).max() > 1e-3
        or exact.min() < 0
        or exact.max() > 255
    ):
        raise InvalidInput(
            f"{folder}: writer {writer} has no images of 28 x 28 pixels in [0, 1], k / 255 each"
        )
    return exact.astype(np.uint8).reshape(-1, 28, 28), y
