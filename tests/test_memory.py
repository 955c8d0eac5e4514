"""Measuring what a client takes must not itself take memory, round after round."""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ifca.core.recipe import Recipe
from ifca.core.types import Data
from ifca.engines.memory_budget import client_bytes
from ifca.models.networks import femnist_cnn
from ifca.models.task import make_task


def test_measuring_a_client_keeps_nothing_alive() -> None:
    """A saved tensor that holds the step which saved it would never be freed."""
    recipe, model = Recipe(k=1, local_epochs=1, batch_size=10), femnist_cnn()
    task = make_task(model, recipe, regression=False, device=torch.device("cpu"))
    data = Data(torch.rand(3, 28, 28), torch.tensor([0, 1, 2]), torch.ones(3))
    theta = {name: value.detach().clone()[None] for name, value in model.named_parameters()}
    storages = [StorageWeakRef(v.untyped_storage()) for v in theta.values()]  # type: ignore[no-untyped-call]
    size = client_bytes(task, recipe, theta, data)
    assert size > 5 * sum(value.numel() * 4 for value in theta.values())
    del theta
    assert all(storage.expired() for storage in storages)  # type: ignore[no-untyped-call]
