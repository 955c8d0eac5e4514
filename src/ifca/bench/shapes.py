"""The shapes of users' federations, as jobs to time: what the paper's data are not.

All but the last have the samples of the paper's 1200 clients x 200 images at scale 1, four populations that
differ in their labels, the paper's network and k = 4; each differs from it in what its name says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Clients, Federation
from ifca.models import cifar_cnn, mlp
from ifca.training import Job

POPULATIONS, CLASSES = 4, 10
PIECE = 2**15  # samples that are drawn at once: memory for all of them is needed only once
INK = 0.19  # share of pixels that are not 0


@dataclass(frozen=True)
class Shape:
    """What distinguishes a federation, its model or its training."""

    about: str
    clients: int = 1200
    samples: int = 200  # of a client, on average
    features: int = 784
    pixels: bool = True  # bytes; else floats
    spread: float = 0.0  # of the logarithm of the clients' sizes
    hidden: tuple[int, ...] = (200,)
    images: bool = False  # colour images of 32 x 32, and the paper's network for CIFAR
    settings: dict[str, Any] = field(default_factory=dict)  # of the recipe


SHAPES = {
    "paper": Shape("the paper's: bytes, equal sizes, everybody takes part"),
    "uneven": Shape("uneven sizes (lognormal, deviation 1)", spread=1.0),
    "float": Shape("float features", pixels=False),
    "table": Shape("float features, uneven sizes, 64 features", pixels=False, spread=1.0, features=64),
    "partial": Shape("10% of the clients take part in a round", settings={"participation": 0.1}),
    "deep": Shape("two hidden layers", hidden=(200, 200)),
    "tiny": Shape("25 samples a client, four times as many clients", clients=4800, samples=25),
    "minibatch": Shape("mini-batches of 20", settings={"batch_size": 20, "local_epochs": 1}),
    "momentum": Shape("momentum and a proximal term", settings={"optimizer": "momentum", "proximal": 0.1}),
    "local": Shape("a model per client", settings={"algorithm": "local"}),
    "images": Shape(
        "the CIFAR network, 5 epochs in mini-batches of 50",
        clients=20,
        samples=500,
        features=3 * 32 * 32,
        images=True,
        settings={"batch_size": 50, "local_epochs": 5, "k": 2, "step_size": 0.01},
    ),
}


def shape_of(name: str) -> Shape:
    """The shape of a name."""
    if name not in SHAPES:
        raise InvalidInput(f"unknown shape {name} (known: {', '.join(SHAPES)})")
    return SHAPES[name]


def shape_job(name: str, scale: float, device: torch.device, **settings: Any) -> Job:
    """A job of the shape, with a share of its clients. settings: of the recipe."""
    shape, rng = shape_of(name), np.random.default_rng(0)
    m = max(2 if shape.images else 2 * POPULATIONS, round(shape.clients * scale))
    sizes = client_sizes(m, shape.samples, shape.spread, rng)
    x = _features(int(sizes.sum()), shape, rng)
    y = _labels(x, sizes, rng)
    train = Clients(
        torch.from_numpy(x.reshape(-1, 3, 32, 32) if shape.images else x),
        torch.from_numpy(y),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        tuple(str(i) for i in range(m)),
        np.arange(m) % POPULATIONS,
    )
    chosen: dict[str, Any] = {"algorithm": "ifca-plain", "k": POPULATIONS, "rounds": 10**6, "local_steps": 10}
    recipe = Recipe(**{**chosen, "step_size": 0.1, **settings, **shape.settings})
    sizes_of = shape.features, CLASSES, shape.hidden
    model = cifar_cnn if shape.images else lambda: mlp(*sizes_of)
    return Job(Federation(train, None, CLASSES), recipe, model, device=device)


def client_sizes(m: int, mean: int, spread: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Samples of m clients, at least 2 each, m x mean in all or (by rounding) nearly so."""
    if spread == 0:
        return np.full(m, mean, np.int64)
    drawn = rng.lognormal(0, spread, m)
    sizes: NDArray[np.int64] = np.round(drawn * mean / drawn.mean()).astype(np.int64)
    return np.maximum(2, sizes)


def _features(rows: int, shape: Shape, rng: np.random.Generator) -> NDArray[Any]:
    """Bytes with MNIST's share of ink, or normal numbers."""
    x = np.empty((rows, shape.features), np.uint8 if shape.pixels else np.float32)
    for at in range(0, rows, PIECE):
        some = x[at : at + PIECE]
        if shape.pixels:
            ink = rng.random(some.shape, dtype=np.float32) < INK
            some[:] = np.where(ink, rng.integers(0, 256, some.shape, dtype=np.uint8), 0)
        else:
            rng.standard_normal(some.shape, dtype=np.float32, out=some)
    return x


def _labels(x: NDArray[Any], sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """The largest of ten random projections, which are others in every population."""
    rules = rng.standard_normal((POPULATIONS, x.shape[1], CLASSES), dtype=np.float32)
    whose = np.repeat(np.arange(len(sizes)) % POPULATIONS, sizes)
    y = np.empty(len(x), np.int64)
    for at in range(0, len(x), PIECE):
        some, of = x[at : at + PIECE].astype(np.float32), whose[at : at + PIECE]
        some -= some.mean(1, keepdims=True)
        said = np.stack([(some @ rule).argmax(1) for rule in rules])
        y[at : at + PIECE] = said[of, np.arange(len(of))]
    return y
