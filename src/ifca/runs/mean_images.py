"""The mean image of each cluster, of all its samples and of the classes in which clusters differ most."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ifca.data import Federation
from ifca.data.clients import features
from ifca.training import Fitted

CLASSES = 4
"""Classes of which mean images are kept."""
SMALL, LARGE = 4, 128
"""Pixels on a side, at least and at most."""
FEWEST = 5
"""Samples of a class in every cluster, without which its mean image is not kept."""
CHUNK = 4096


def image_shape(federation: Federation) -> tuple[int, int, int] | None:
    """Height, width and channels of a sample; None where samples are no images.

    Rows of pixels (bytes without names) are images where they make a square.
    """
    shape = federation.input_shape
    if len(shape) == 1 and federation.features is None and federation.train.x.dtype == torch.uint8:
        side = math.isqrt(shape[0])
        shape = (side, side) if side * side == shape[0] else ()
    if len(shape) == 2:
        shape = (1, *shape)
    if len(shape) != 3 or shape[0] not in (1, 3) or not all(SMALL <= side <= LARGE for side in shape[1:]):
        return None
    return shape[1], shape[2], shape[0]


def mean_images(fitted: Fitted, live: list[int], shape: tuple[int, int, int]) -> dict[str, Any]:
    """Bytes of the mean images [clusters, kinds, height, width, channels] in base 64; kinds: what of."""
    federation = fitted.job.federation
    height, width, channels = shape
    classes = federation.classes or 1
    sums, counts = _sums(fitted, live, classes)  # [clusters, classes, pixels], [clusters, classes]
    everything = sums.sum(1) / np.maximum(counts.sum(1), 1)[:, None]
    kinds, pictures = ["all samples"], [everything]
    if federation.classes is not None:
        by_class = sums / np.maximum(counts, 1)[:, :, None]
        known = [c for c in range(classes) if counts[:, c].min() >= FEWEST]
        for c in sorted(known, key=lambda c: -by_class[:, c].std(0).mean())[:CLASSES]:
            kinds.append(f"class {c}")
            pictures.append(by_class[:, c])
    whole = np.stack(pictures, 1)
    low, high = whole.min(), whole.max()
    scaled = np.round(255 * (whole - low) / max(high - low, 1e-12)).astype(np.uint8)
    drawn = scaled.reshape(len(live), len(kinds), channels, height, width).transpose(0, 1, 3, 4, 2)
    text = base64.b64encode(np.ascontiguousarray(drawn).tobytes()).decode()
    return {"shape": list(drawn.shape), "kinds": kinds, "pixels": text}


def _sums(fitted: Fitted, live: list[int], classes: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sums of samples, and how many there are, by cluster and class."""
    federation = fitted.job.federation
    train, place = federation.train, {j: c for c, j in enumerate(live)}
    of_client = np.array([place.get(j, -1) for j in fitted.labels.tolist()])
    owner = np.repeat(of_client, train.sizes)
    kind = np.zeros(len(owner), int) if federation.classes is None else train.y.cpu().numpy().reshape(-1)
    cell = np.where(owner >= 0, owner * classes + kind, -1)
    pixels = math.prod(federation.input_shape)
    sums = torch.zeros(len(live) * classes, pixels, dtype=torch.float64)
    for start in range(0, len(cell), CHUNK):
        some = torch.from_numpy(cell[start : start + CHUNK])
        x = features(train.x[start : start + CHUNK].cpu(), torch.float64).flatten(1)
        sums.index_add_(0, some[some >= 0], x[some >= 0])
    counts = np.bincount(cell[cell >= 0], minlength=len(live) * classes)
    return sums.numpy().reshape(len(live), classes, pixels), counts.reshape(len(live), classes)
