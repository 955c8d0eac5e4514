"""Rotated Digits: scikit-learn's bundled handwritten digits, turned; no download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.core.random import shuffled
from ifca.data.clients import Client
from ifca.data.federation import Federation

FILE = "digits.csv.gz"


def rotated_digits(
    *, samples: int = 50, angles: tuple[int, ...] = (0, 90, 180, 270), test_share: float = 0.2, seed: int = 0
) -> Federation:
    """1,797 digits of 8 x 8; each rotation deals all of them, in an order of its own, to its clients.

    The images are first split into training and test images, the same for all rotations; a client has
    `samples` training images and its share of its rotation's test images. Pixels are scaled to [0, 1]. An
    angle that is named twice deals twice: (0, 0, 0, 0) has no clusters to be found.
    """
    images, labels = read_digits()
    order = shuffled(seed, "digits-split", np.array([len(images)]), np.array([0]))[0]
    held_out = round(test_share * len(images))
    test, train = order[:held_out], order[held_out:]
    clients = len(train) // samples
    if any(angle % 90 for angle in angles):
        raise InvalidInput(f"data.angles must be multiples of 90 degrees, got {list(angles)}")
    if not 0 < test_share < 1 or clients < 1 or held_out < clients:
        raise InvalidInput(
            f"data.samples = {samples} with data.test_share = {test_share} leaves a client empty"
        )
    federation = []
    for cluster, angle in enumerate(angles):
        turned = np.rot90(images, angle // 90, axes=(1, 2))
        mine = train[shuffled(seed, "digits-deal", np.array([len(train)]), np.array([cluster]))[0]]
        tests = test[shuffled(seed, "digits-test", np.array([held_out]), np.array([cluster]))[0]]
        parts = zip(np.split(mine[: clients * samples], clients), np.array_split(tests, clients), strict=True)
        for i, (a, b) in enumerate(parts, start=clients * angles[:cluster].count(angle)):
            federation.append(Client(turned[a], labels[a], turned[b], labels[b], f"{angle}-{i:02d}", angle))
    return Federation.from_clients(federation, classes=10)


def read_digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images [1797, 8, 8] in [0, 1] and labels [1797], as scikit-learn's load_digits gives them.

    Read from its file: to import scikit-learn takes longer than the first round.
    """
    found = find_spec("sklearn")
    folders = [] if found is None else found.submodule_search_locations or []
    files = [file for folder in folders if (file := Path(folder, "datasets", "data", FILE)).is_file()]
    if files:
        table = np.loadtxt(files[0], delimiter=",")  # 64 pixels from 0 to 16, then the digit
    else:  # where another version keeps it
        from sklearn.datasets import load_digits

        digits = load_digits()
        table = np.column_stack([digits.data, digits.target])
    return (table[:, :-1].reshape(-1, 8, 8) / 16).astype(np.float32), table[:, -1].astype(np.int64)
