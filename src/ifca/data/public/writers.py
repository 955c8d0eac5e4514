"""MNIST by writer: a natural federation. Who wrote each digit is known from QMNIST's extended labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput, Unreadable
from ifca.core.random import key_of, shuffled
from ifca.data.clients import Client
from ifca.data.federation import Federation
from ifca.data.formats.npz_file import read_npz
from ifca.data.public.mnist import read_mnist
from ifca.data.public.places import check_md5, damaged, require

FILE = "mnist_writer_ids.npz"
MD5 = {  # of the arrays' bytes, int16 and int8
    "train_writer": "36523d6f5f6a64adcadf38156f57f35b",
    "train_hsf": "d2bdb6f989b8e4a9eacd953a8c948635",
    "test_writer": "0e1c9095d2bce6b1d0161d4cd483b67f",
    "test_hsf": "380ce64f9811cf2e29b28f86ebca747e",
}


def mnist_writers(
    folder: Path | str | None = None,
    *,
    test_share: float = 0.1,
    min_images: int = 1,
    populations: bool = True,
    seed: int = 0,
    verify: bool = True,
) -> Federation:
    """A client per writer of MNIST's training images: 539 writers of 19 to 131 digits.

    test_share of each writer's digits, at least one, are kept to test on. populations: the part of NIST a
    writer comes from is given as the true cluster (0: census employees, 289 writers; 4: high school
    students, 250). min_images leaves out writers with fewer digits. folder holds mnist/ and
    mnist-writers/ (None: IFCA_DATA, then the cache).
    """
    if not 0 < test_share < 1:
        raise InvalidInput(f"data.test_share must be between 0 and 1, got {test_share}")
    images, _ = read_mnist(folder, verify=verify)
    writer, population = read_writers(folder, len(images.x), verify=verify)
    clients = []
    for name in np.unique(writer):
        mine = np.flatnonzero(writer == name)
        if len(mine) < max(2, min_images):
            continue
        key = np.array([key_of(str(name))], np.uint64)
        order = shuffled(seed, "writers-split", np.array([len(mine)]), key)[0]
        held_out = max(1, round(test_share * len(mine)))
        test, train = np.sort(mine[order[:held_out]]), np.sort(mine[order[held_out:]])
        cluster = int(population[mine[0]]) if populations else None
        parts = (images.x[train], images.y[train], images.x[test], images.y[test])
        clients.append(Client(*parts, id=f"w{name:04d}", cluster=cluster))
    if not clients:
        raise InvalidInput(f"data.min_images = {min_images}: no writer has so many digits")
    return Federation.from_clients(clients, classes=10)


def read_writers(
    folder: Path | str | None = None, n: int = 60000, *, verify: bool = True
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of each training image the writer, and the part of NIST ("hsf") that the writer comes from."""
    file = require("mnist-writers", (FILE,), folder)
    try:
        content = read_npz(file)
        writer, population = content["train_writer"], content["train_hsf"]
    except (Unreadable, KeyError) as reason:
        raise damaged("mnist-writers", file, f"not a readable .npz file ({reason})") from reason
    if len(writer) != n or len(population) != n:
        raise damaged("mnist-writers", file, f"{len(writer)} writers for {n} images")
    if verify:
        check_md5("mnist-writers", file, writer.astype("<i2").tobytes(), MD5["train_writer"])
        check_md5("mnist-writers", file, population.astype("i1").tobytes(), MD5["train_hsf"])
    return writer, population
