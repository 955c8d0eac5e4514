"""MNIST from its idx files, and the paper's Rotated MNIST."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import Unreadable
from ifca.data.federation import Federation
from ifca.data.formats.whole_file import read_whole, unpacked
from ifca.data.public.places import check_md5, damaged, require
from ifca.data.public.rotated import Images, rotated

MD5 = {  # of the idx bytes, unpacked
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
KINDS = {8: np.uint8, 9: np.int8, 11: np.int16, 12: np.int32, 13: np.float32, 14: np.float64}


def rotated_mnist(
    folder: Path | str | None = None,
    *,
    samples: int = 200,
    angles: tuple[int, ...] = (0, 90, 180, 270),
    shares: tuple[float, ...] | None = None,
    clients: int | None = None,
    test_clients: int | None = None,
    seed: int = 0,
    verify: bool = True,
) -> Federation:
    """The paper's Rotated MNIST: m = 240,000 / samples clients in four clusters, 40,000 / samples to test.

    folder holds mnist/ or the four idx files, .gz or not (None: IFCA_DATA, then the cache). verify: refuse
    files that are not MNIST's; without it other sets in the same format, such as Fashion-MNIST, will do.
    For the other arguments see rotated().
    """
    train, test = read_mnist(folder, verify=verify)
    return rotated(
        train,
        test,
        samples=samples,
        angles=angles,
        shares=shares,
        clients=clients,
        test_clients=test_clients,
        seed=seed,
    )


def read_mnist(folder: Path | str | None = None, *, verify: bool = True) -> tuple[Images, Images]:
    """The training and the test images [n, 28, 28], bytes, with their labels."""
    train, test = (
        _images(*(_read(f"{part}-{kind}-ubyte", folder, verify) for kind in ("images-idx3", "labels-idx1")))
        for part in ("train", "t10k")
    )
    return train, test


def read_idx(file: Path) -> NDArray[Any]:
    """The array of one idx file, .gz or not."""
    return idx_array(file, unpacked_idx(file))


def unpacked_idx(file: Path) -> bytes:
    """The bytes of a file; those inside where it is a .gz file."""
    try:
        return unpacked(file, read_whole(file))
    except Unreadable as reason:
        raise damaged("mnist", file, str(reason).removeprefix(f"{file}: ")) from reason


def idx_array(file: Path, content: bytes) -> NDArray[Any]:
    """The array in the bytes of an idx file: 0, 0, type, number of dimensions, sizes, values."""
    start = 4 + 4 * content[3] if len(content) > 3 else 4
    if len(content) < start or content[:2] != b"\0\0" or content[2] not in KINDS:
        raise damaged("mnist", file, "not an idx file (cut off or altered)")
    sizes = tuple(np.frombuffer(content[4:start], ">u4").tolist())
    kind = np.dtype(KINDS[content[2]]).newbyteorder(">")
    expected = start + math.prod(sizes) * kind.itemsize
    if len(content) != expected:
        raise damaged("mnist", file, f"{len(content)} bytes instead of {expected} (cut off or altered)")
    return np.frombuffer(content, kind, offset=start).reshape(sizes)


def _read(name: str, folder: Path | str | None, verify: bool) -> tuple[Path, NDArray[Any]]:
    file = require("mnist", (f"{name}.gz", name), folder)
    content = unpacked_idx(file)
    array = idx_array(file, content)
    if verify:
        check_md5("mnist", file, content, MD5[name])
    return file, array


def _images(images: tuple[Path, NDArray[Any]], labels: tuple[Path, NDArray[Any]]) -> Images:
    (_, x), (file, y) = images, labels
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
        raise damaged("mnist", file, f"labels of shape {y.shape} do not fit images of shape {x.shape}")
    return Images(x, y.astype(np.int64))
