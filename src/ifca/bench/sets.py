"""The labelled data sets that regimes are made of; read once per process."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from ifca.core.random import generator
from ifca.data import read_cifar, read_mnist
from ifca.data.partitioning import Labelled
from ifca.data.public.digits import read_digits

CIFAR_IMAGES = (20_000, 5_000)  # training and test images whose features are computed


class Parts(NamedTuple):
    """Training and test samples; test None: a share is split off by the seed."""

    train: Labelled
    test: Labelled | None = None


@lru_cache(1)
def mnist() -> Parts:
    """60,000 and 10,000 images of 28 x 28, bytes."""
    train, test = read_mnist()
    return Parts(Labelled(*train), Labelled(*test))


@lru_cache(1)
def digits() -> Parts:
    """1,797 images of 8 x 8 from 0 to 1."""
    return Parts(Labelled(*read_digits()))


@lru_cache(1)
def cifar_features() -> Parts:
    """CIFAR-10 through fixed random filters: 64 of 6 x 6, ReLU, means over 4 x 4 fields: 1,024 features.

    Nothing is learned for them, so every method begins with the same features.
    """
    train, test = read_cifar()
    kept = (Labelled(part.x[:n], part.y[:n]) for part, n in zip((train, test), CIFAR_IMAGES, strict=True))
    filters = torch.randn(64, 3, 6, 6, generator=generator(0, "cifar-filters"))
    filters = filters - filters.mean((1, 2, 3), keepdim=True)
    parts = [Labelled(_filtered(part.x, filters), part.y) for part in kept]
    mean, std = parts[0].x.mean(0), parts[0].x.std(0) + 1e-6
    return Parts(*(Labelled(((part.x - mean) / std).astype(np.float32), part.y) for part in parts))


def _filtered(x: np.ndarray, filters: torch.Tensor) -> np.ndarray:
    pieces = []
    for i in range(0, len(x), 1000):
        images = torch.from_numpy(x[i : i + 1000]).float() / 255
        images = (images - images.mean((1, 2, 3), keepdim=True)) / (images.std((1, 2, 3), keepdim=True) + 0.1)
        pieces.append(F.adaptive_avg_pool2d(F.conv2d(images, filters).relu(), 4).flatten(1))
    return np.asarray(torch.cat(pieces).numpy())


@lru_cache(3)
def table(name: str) -> Parts:
    """A table that scikit-learn ships, features at mean 0 and variance 1: breast_cancer, wine, diabetes."""
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    x = (found.data - found.data.mean(0)) / found.data.std(0)
    y = found.target
    if y.dtype.kind == "f":
        y = ((y - y.mean()) / y.std()).astype(np.float32)
    return Parts(Labelled(x.astype(np.float32), y))
