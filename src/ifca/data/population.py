"""Second step of a partition: what each population does to its samples, as pure functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data.dealing import Ints, client_rng

Array = NDArray[Any]


@dataclass(frozen=True)
class Population:
    """A true cluster: its share of the clients, and what is done to its samples.

    Fields are applied in their order. Pixels given as bytes count from 0 to 1 and stay bytes.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}  # in a config
    share: float = 1.0
    """Its part of the clients, beside those of the others."""
    clients: int | None = None
    """Exactly so many clients, instead of a share: 1 is a client alone."""
    labels: tuple[int, ...] | None = None
    """It has only these classes (label groups, disjoint or overlapping); none: all."""
    turn: float = 0.0
    """Images are turned by so many degrees, counter-clockwise; multiples of 90 are exact."""
    blur: float = 0.0
    """Images are blurred by a Gaussian of so many pixels."""
    contrast: float = 1.0
    """x becomes mean + contrast x (x - mean), with the mean of each sample."""
    gain: float = 1.0
    """x is multiplied by this (brightness, a sensor's gain)."""
    offset: float = 0.0
    """This is added to x (a sensor's offset)."""
    drift: float = 0.0
    """Every feature is multiplied by exp(drift x g) and moved by drift x h of its standard deviations, g and
    h normal, drawn once for the population: sensors that were calibrated differently."""
    invert: bool = False
    """x becomes 1 - x: white becomes black."""
    noise: float = 0.0
    """Normal noise of this standard deviation is added to x."""
    permutation: Literal["random"] | tuple[int, ...] | None = None
    """Class c becomes permutation[c]; random: drawn for the population."""
    swap: tuple[int, int] | None = None
    """These two classes change places."""
    target_gain: float = 1.0
    """Regression: y is multiplied by this."""
    target_offset: float = 0.0
    """Regression: this is added to y."""
    wrong_labels: float = 0.0
    """Share of the training labels that are replaced by another class at random; test labels are right."""

    def __post_init__(self) -> None:
        """Refuse what cannot be, naming the field."""
        if not self.share > 0:
            raise InvalidInput(f"share must be positive, got {self.share}")
        if self.clients is not None and self.clients < 1:
            raise InvalidInput(f"clients of a population must be at least 1, got {self.clients}")
        if not 0 <= self.wrong_labels <= 1:
            raise InvalidInput(f"wrong_labels must be from 0 to 1, got {self.wrong_labels}")
        for name in ("blur", "noise", "drift"):
            if getattr(self, name) < 0:
                raise InvalidInput(f"{name} must be zero or positive, got {getattr(self, name)}")


def changed_features(
    population: Population, x: Array, deviation: Array, seed: int, j: int, whose: tuple[int, ...]
) -> Array:
    """What population j does to samples x [n, ...] of one client.

    deviation: of each feature in the data; whose: what the noise depends on, beside the seed.
    """
    if population.turn or population.blur:
        _check_images(x)
    if population.turn:
        x = turned(x, population.turn)
    byte = x.dtype == np.uint8
    out = x.astype(np.float32) / 255 if byte else x
    if population.blur:
        out = blurred(out, population.blur)
    if population.contrast != 1:
        mean = out.reshape(len(out), -1).mean(1).reshape(-1, *[1] * (out.ndim - 1))
        out = mean + population.contrast * (out - mean)
    out = out * population.gain + population.offset
    if population.drift:
        rng = client_rng(seed, "population-drift", j)
        gain, offset = population.drift * rng.standard_normal((2, *x.shape[1:]))
        out = out * np.exp(gain) + offset * (deviation / 255 if byte else deviation)
    if population.invert:
        out = 1 - out
    if population.noise:
        out = out + population.noise * client_rng(seed, "population-noise", *whose).standard_normal(x.shape)
    if byte:
        return np.rint(np.clip(out, 0, 1) * 255).astype(np.uint8)
    return np.asarray(out.astype(x.dtype, copy=False))


def changed_targets(population: Population, y: Array, classes: int | None, seed: int, j: int) -> Array:
    """What population j does to labels or targets y [n]; wrong labels come later, by client."""
    if classes is None:
        return np.asarray((y * population.target_gain + population.target_offset).astype(y.dtype))
    return np.asarray(label_map(population, classes, seed, j)[y])


def label_map(population: Population, classes: int, seed: int, j: int) -> Ints:
    """Class -> the class that population j calls it: [classes]."""
    if population.permutation == "random":
        found = client_rng(seed, "population-permutation", j).permutation(classes)
    elif population.permutation is not None:
        found = np.array(population.permutation)
        if sorted(found.tolist()) != list(range(classes)):
            given = list(population.permutation)
            raise InvalidInput(f"permutation must hold each class from 0 to {classes - 1} once, got {given}")
    else:
        found = np.arange(classes)
    if population.swap is not None:
        a, b = population.swap
        if not (0 <= a < classes and 0 <= b < classes):
            raise InvalidInput(f"swap must name two classes from 0 to {classes - 1}, got {[a, b]}")
        found = np.array([{a: b, b: a}.get(c, c) for c in range(classes)])[found]
    return found.astype(np.int64)


def with_wrong_labels(y: Ints, share: float, classes: int, seed: int, client: int) -> Ints:
    """A client's labels, of which about this share is replaced, each by another class."""
    if not share:
        return y
    rng = client_rng(seed, "wrong-labels", client)
    wrong, other = rng.random(len(y)) < share, rng.integers(1, classes, len(y))
    return np.where(wrong, (y + other) % classes, y)


def turned(x: Array, degrees: float) -> Array:
    """Images [n, ..., height, width] turned counter-clockwise about their middle; what comes in is black."""
    quarters, rest = divmod(degrees, 90)
    if x.shape[-1] == x.shape[-2] or not quarters % 2:
        x = np.rot90(x, int(quarters) % 4, axes=(-2, -1))
        degrees = rest
    if not degrees:
        return np.ascontiguousarray(x)
    import torch
    import torch.nn.functional as F

    images = torch.from_numpy(np.ascontiguousarray(x)).double().reshape(len(x), -1, *x.shape[-2:])
    a, (h, w) = np.deg2rad(degrees), x.shape[-2:]
    # grid_sample asks where each pixel comes from, in units of half the image: the inverse turn
    turn = [[np.cos(a), -np.sin(a) * h / w, 0.0], [np.sin(a) * w / h, np.cos(a), 0.0]]
    grid = F.affine_grid(torch.tensor([turn], dtype=torch.float64), [1, 1, h, w], align_corners=False)
    out = F.grid_sample(images, grid.expand(len(x), -1, -1, -1), align_corners=False).reshape(x.shape).numpy()
    return np.asarray((np.rint(out) if x.dtype == np.uint8 else out).astype(x.dtype))


def blurred(x: Array, sigma: float) -> Array:
    """Images [n, ..., height, width] with a Gaussian of sigma pixels over them; edges are repeated."""
    from scipy.ndimage import gaussian_filter1d

    for axis in (-2, -1):
        x = gaussian_filter1d(x, sigma, axis=axis, mode="nearest")
    return x


def _check_images(x: Array) -> None:
    if x.ndim < 3:
        raise InvalidInput(f"turn and blur are for images [n, height, width], got samples of {x.shape[1:]}")
