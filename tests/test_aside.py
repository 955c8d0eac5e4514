"""Comparing models on samples set aside: the ways to do it are those of one client after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ifca.core.recipe import Recipe
from ifca.data import Federation
from ifca.engines import aside
from ifca.models import mlp
from ifca.training import Job


def pooled() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3)
    )


@pytest.mark.parametrize("way", [aside._by_all, aside._by_those_asked_for])
@pytest.mark.parametrize("make", [lambda: mlp(6, 3, (5,)), lambda: mlp(6, 3, (5, 4)), pooled])
def test_differences_of_losses(
    way: Callable[..., Tensor], make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of 1 to 5 samples, each with its own model and two others to judge; seven losses at once."""
    rng, sizes = np.random.default_rng(0), (3, 1, 5, 2)
    x = [rng.normal(size=(n, 6)).astype(np.float32) for n in sizes]
    federation = Federation.from_arrays(x, [rng.integers(0, 3, n) for n in sizes], classes=3)
    job = Job(federation, Recipe(algorithm="ifca-plain", k=3, local_steps=1, step_size=0.1), make)
    drawn = [job.draw(torch.Generator().manual_seed(seed)) for seed in range(5)]
    theta = {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}
    who, own, others = (
        torch.tensor([0, 2, 3]),
        torch.tensor([0, 2, 2]),
        torch.tensor([[1, 3], [0, 4], [1, 4]]),
    )
    monkeypatch.setattr(aside, "LOSSES", 7)
    monkeypatch.setattr(aside, "ROWS", 2)
    monkeypatch.setattr(aside, "_by_those_asked_for", way)
    found = aside._together(job.task, federation.train, theta, who, own, others)
    want = aside._one_by_one(job.task, federation.train, theta, who, own, others)
    assert torch.equal(found.samples, torch.tensor([3, 5, 2]))
    assert torch.equal(found.samples, want.samples)
    torch.testing.assert_close(found.total, want.total, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.square, want.square, rtol=1e-6, atol=1e-6)
