"""The paper's recipes as jobs; experiments change rounds, algorithm and device."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from ifca.core.recipe import Recipe
from ifca.data import Federation, femnist, read_cifar, read_mnist, rotated_digits
from ifca.data.public.rotated import Images, rotated
from ifca.engines.precision import Precision
from ifca.models import cifar_cnn, femnist_cnn, mlp
from ifca.training import Job

WRITERS = 10  # that take part in a round of FEMNIST


def mnist(samples: int, seed: int, k: int = 4, rounds: int = 300, **options: Any) -> Job:
    """Rotated MNIST: m = 240,000 / samples clients, tau = 10 full-batch steps of 0.1, everybody in a round.

    options: of data.rotated.rotated (clients, test_clients, angles, shares).
    """
    options = {"angles": (0, 90, 180, 270), **options}
    recipe = Recipe(k=k, rounds=rounds, local_steps=10, step_size=0.1, evaluate_every=0, seed=seed)
    data = _rotated_mnist(samples, seed, tuple(sorted(options.items())))
    return Job(data, recipe, lambda: mlp(784, 10, (200,)))


def cifar(seed: int, rounds: int = 600, **options: Any) -> Job:
    """Rotated CIFAR: m = 200, n = 500, 20 clients a round, 5 epochs of batch 50, steps 0.25 x 0.99^t."""
    recipe = Recipe(k=2, rounds=rounds, local_epochs=5, batch_size=50, step_size=0.25, step_decay=0.99)
    recipe = replace(recipe, l2=0.004, l2_layers=("fc1", "fc2"), participation=0.1, augment=True)
    recipe = replace(recipe, evaluate_every=0, seed=seed)
    options = {"samples": 500, "angles": (0, 180), **options}
    return Job(_rotated_cifar(seed, tuple(sorted(options.items()))), recipe, cifar_cnn)


def writers(seed: int, k: int = 3, rounds: int = 1200) -> Job:
    """LEAF FEMNIST, 395-writer subset: 359 writers, all layers shared but the last; 10 writers a round."""
    data = _femnist()
    recipe = Recipe(k=k, rounds=rounds, local_epochs=1, batch_size=10, step_size=0.03, step_decay=0.998)
    recipe = replace(recipe, shared=("conv1", "conv2", "fc1"), participation=WRITERS / len(data.train))
    recipe = replace(recipe, erm_step_size=0.002)  # of logistic regressions on raw pixels, mostly white
    return Job(data, replace(recipe, evaluate_every=0, seed=seed), femnist_cnn)


def digits(seed: int, k: int = 4, rounds: int = 60) -> Job:
    """The default job."""
    recipe = Recipe(k=k, rounds=rounds, local_steps=10, step_size=0.1, evaluate_every=0, seed=seed)
    return Job(_rotated_digits(seed), recipe, lambda: mlp(64, 10, (100,)))


def placed(job: Job, device: torch.device, precision: Precision = "float32") -> Job:
    """On a device; on CUDA in the precision that the experiment allows itself there."""
    return replace(job, device=device, precision=precision if device.type == "cuda" else "float32")


@lru_cache(1)  # all algorithms of a seed
def _rotated_mnist(samples: int, seed: int, options: tuple[tuple[str, Any], ...]) -> Federation:
    return rotated(*_mnist(), samples=samples, seed=seed, **dict(options))


@lru_cache(1)
def _rotated_cifar(seed: int, options: tuple[tuple[str, Any], ...]) -> Federation:
    return rotated(*_cifar(), seed=seed, **dict(options))


@lru_cache(1)
def _rotated_digits(seed: int) -> Federation:
    return rotated_digits(seed=seed)


@lru_cache(1)
def _mnist() -> tuple[Images, Images]:
    return read_mnist()


@lru_cache(1)
def _cifar() -> tuple[Images, Images]:
    return read_cifar()


@lru_cache(1)
def _femnist() -> Federation:
    return femnist()
