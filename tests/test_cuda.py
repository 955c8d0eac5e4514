"""On a CUDA machine: the same results as the loop on the CPU. Skipped where there is no GPU."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from ifca.core.recipe import Recipe
from ifca.data import Federation
from ifca.engines import Job, fit, fused
from ifca.models import cifar_cnn, mlp

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
CUDA = torch.device("cuda")


def pixels(m: int, n: int, shape: tuple[int, ...]) -> Federation:
    rng = np.random.default_rng(0)
    x = [rng.integers(0, 256, (n, *shape), dtype=np.uint8) for _ in range(m)]
    return Federation.from_arrays(x, [rng.integers(0, 10, n) for _ in range(m)], classes=10)


def assert_equals_the_loop(job: Job, tolerance: float = 1e-5) -> None:
    oracle = fit(replace(job, engine="loop", device=torch.device("cpu"), precision="float64"))
    result = fit(job)
    assert torch.equal(result.labels, oracle.labels)
    for name, value in oracle.state.theta.items():
        assert float((result.state.theta[name].cpu() - value).norm() / value.norm()) < tolerance


@pytest.mark.parametrize("n", [33, 50, 100, 129, 200])
def test_the_fused_round(n: int) -> None:
    job = Job(
        pixels(8, n, (28, 28)),
        Recipe(algorithm="ifca-plain", k=3, rounds=3, evaluate_every=0),
        lambda: mlp(784, 10),
        device=CUDA,
    )
    assert fused.applies(job.task, job.recipe, job.federation.train, CUDA) == (
        find_spec("triton") is not None
    )
    assert_equals_the_loop(job)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(algorithm="ifca-plain", k=3, rounds=3, stable_after=1),
        Recipe(algorithm="ifca-plain", k=3, rounds=3, weighted=True, step_decay=0.9),
        Recipe(algorithm="ifca-plain", k=3, rounds=3, participation=0.5),
        Recipe(algorithm="ifca-plain", k=2, rounds=2, batch_size=10, local_epochs=1),
        Recipe(algorithm="local", rounds=2),
    ],
)
def test_other_recipes(recipe: Recipe) -> None:
    assert_equals_the_loop(Job(pixels(6, 40, (9, 9)), recipe, lambda: mlp(81, 10), device=CUDA))


@pytest.mark.parametrize("augment", [False, True])
def test_captured_steps_of_a_convolutional_network(augment: bool) -> None:
    recipe = Recipe(
        algorithm="ifca-plain", k=2, rounds=2, local_epochs=2, batch_size=25, step_size=0.01, evaluate_every=0
    )
    recipe = replace(recipe, augment=augment)
    assert_equals_the_loop(Job(pixels(2, 50, (3, 32, 32)), recipe, cifar_cnn, device=CUDA), tolerance=1e-3)
