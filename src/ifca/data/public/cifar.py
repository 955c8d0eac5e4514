"""CIFAR-10 from its binary or its python batches, and the paper's Rotated CIFAR."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.data.federation import Federation
from ifca.data.public.pickles import load_arrays
from ifca.data.public.places import check_md5, damaged, require
from ifca.data.public.rotated import Images, rotated

MD5 = {  # of the binary layout: per image a label byte, then 1024 red, 1024 green, 1024 blue bytes
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
ROW = 1 + 3 * 32 * 32
PLACES = ("{}.bin", "cifar-10-batches-bin/{}.bin", "{}", "cifar-10-batches-py/{}")


def rotated_cifar(
    folder: Path | str | None = None,
    *,
    samples: int = 500,
    angles: tuple[int, ...] = (0, 180),
    shares: tuple[float, ...] | None = None,
    clients: int | None = None,
    test_clients: int | None = None,
    seed: int = 0,
    verify: bool = True,
) -> Federation:
    """The paper's Rotated CIFAR: m = 100,000 / samples clients in two clusters, 20,000 / samples to test.

    folder holds cifar10/, or the batches themselves, binary or python (None: IFCA_DATA, then the cache).
    verify: refuse files that are not CIFAR-10's. For the other arguments see rotated().
    """
    train, test = read_cifar(folder, verify=verify)
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


def read_cifar(folder: Path | str | None = None, *, verify: bool = True) -> tuple[Images, Images]:
    """The training and the test images [n, 3, 32, 32], bytes, with their labels."""
    *train, test = (_read(name, folder, verify) for name in MD5)
    return _images(np.concatenate(train)), _images(test)


def _read(name: str, folder: Path | str | None, verify: bool) -> NDArray[np.uint8]:
    """One batch in the binary layout, [n, 3073], from either kind of file."""
    file = require("cifar10", [place.format(name) for place in PLACES], folder)
    content = file.read_bytes()
    if file.suffix == ".bin":
        if not content or len(content) % ROW:
            what = f"{len(content)} bytes are no whole number of images of {ROW} bytes (cut off or altered)"
            raise damaged("cifar10", file, what)
        rows = np.frombuffer(content, np.uint8).reshape(-1, ROW)
    else:
        rows = _python_batch(file, content)
    if verify:
        check_md5("cifar10", file, rows.tobytes(), MD5[name])
    return rows


def _python_batch(file: Path, content: bytes) -> NDArray[np.uint8]:
    try:
        batch: Any = load_arrays(content)
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
        if pixels.dtype != np.uint8 or pixels.shape != (len(labels), ROW - 1) or not len(labels):
            raise ValueError(f"data of type {pixels.dtype} and shape {pixels.shape} for {len(labels)} labels")
        return np.concatenate([labels.astype(np.uint8)[:, None], pixels], axis=1)
    except (ValueError, KeyError, TypeError, IndexError) as reason:
        raise damaged("cifar10", file, f"not a batch of CIFAR-10 ({reason})") from reason


def _images(rows: NDArray[np.uint8]) -> Images:
    return Images(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64))
