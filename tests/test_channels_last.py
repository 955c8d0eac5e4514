"""Convolutional networks with channels last in memory: the same function, and the same training."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Federation
from ifca.engines import precision
from ifca.engines.loop import LoopEngine
from ifca.models import cifar_cnn
from ifca.models.channels_last import channels_last
from ifca.models.networks import cnn, femnist_cnn
from ifca.training import Job, fit

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cifar": (cifar_cnn, (3, 32, 32)),
    "grey": (lambda: cnn((12, 12), 3), (12, 12)),
    "colour": (lambda: cnn((12, 12, 3), 3), (12, 12, 3)),
    "femnist": (femnist_cnn, (28, 28)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_the_same(name: str) -> None:
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    module, x = make().double(), torch.rand(3, *shape, dtype=torch.float64)
    other = channels_last(module, x)
    assert other is not None
    assert list(other.state_dict()) == list(module.state_dict())
    found = []
    for one in (module, other):
        output = one(x)
        (output**2).sum().backward()
        found.append((output, [value.grad for value in one.parameters()]))
    torch.testing.assert_close(*found)


def test_a_relu_follows_the_pooling() -> None:
    other = channels_last(cnn((12, 12), 3), torch.rand(2, 12, 12))
    assert other is not None
    kinds = [type(part).__name__ for part in other]  # type: ignore[attr-defined]
    assert kinds[1:4] == ["Conv2d", "MaxPool2d", "ReLU"]


class Viewed(nn.Module):
    """It counts on the order of numbers in memory."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1)


def test_what_looks_at_memory_itself_is_left_as_it_is() -> None:
    layers = OrderedDict(conv=nn.Conv2d(3, 4, 3), view=Viewed(), out=nn.Linear(4 * 36, 2))
    assert channels_last(nn.Sequential(layers), torch.rand(2, 3, 8, 8)) is None
    assert channels_last(nn.Sequential(nn.Linear(3, 2)), torch.rand(2, 3)) is None


def images(m: int = 3, n: int = 6) -> Federation:
    rng = np.random.default_rng(0)
    x = [rng.integers(0, 256, (n + i, 12, 12), dtype=np.uint8) for i in range(m)]
    return Federation.from_arrays(x, [rng.integers(0, 3, len(one)) for one in x], classes=3)


def test_the_engine_takes_it_and_equals_the_loop() -> None:
    recipe = Recipe("ifca-plain", k=2, rounds=2, batch_size=3, local_epochs=1)
    job = Job(images(), recipe, lambda: cnn((12, 12), 3), precision="float64")
    engine = job.engine_of(job.federation.train)
    assert isinstance(engine, LoopEngine)
    assert engine.task is not job.task
    plain = replace(job, fast_path=False)
    assert plain.engine_of(job.federation.train).task is plain.task  # type: ignore[attr-defined]
    loop, fast = fit(replace(job, engine="loop")), fit(job)
    torch.testing.assert_close(fast.state.theta, loop.state.theta)
    assert torch.equal(loop.labels, fast.labels)


def test_bfloat16_on_a_cpu_is_asked_for_and_only_where_there_is_such_arithmetic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = Recipe("global", rounds=1, batch_size=3, local_epochs=1)
    monkeypatch.setattr(precision, "_has_bfloat16", lambda: False)
    with pytest.raises(InvalidInput, match="this CPU has no such arithmetic"):
        Job(images(), recipe, lambda: cnn((12, 12), 3), precision="bfloat16")
    monkeypatch.setattr(precision, "_has_bfloat16", lambda: True)
    job = Job(images(), recipe, lambda: cnn((12, 12), 3), precision="bfloat16")
    low, full = fit(job), fit(replace(job, precision="float32"))
    for name, value in full.state.theta.items():
        assert low.state.theta[name].dtype == torch.float32
        torch.testing.assert_close(low.state.theta[name], value, rtol=0.1, atol=0.01)
        assert not torch.equal(low.state.theta[name], value)
