"""Modules as tasks: the paper's networks, the user's own, and those that cannot be federated."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from ifca.core.errors import InvalidInput
from ifca.core.random import generator
from ifca.core.recipe import Recipe
from ifca.data import Federation
from ifca.engines.loop import LoopEngine
from ifca.engines.vectorised import VectorisedEngine
from ifca.models import as_factory, cifar_cnn, femnist_cnn, make_draw, make_task, mlp
from ifca.models.first_layer import first_layer
from ifca.models.networks import ResponseNorm
from ifca.training import Job, fit
from ifca.training.start import start

CPU = torch.device("cpu")


def sizes(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_papers_networks_have_their_sizes() -> None:
    assert sizes(mlp(784, 10)) == 784 * 200 + 200 + 200 * 10 + 10
    cifar = (75 * 64 + 64) + (1600 * 64 + 64) + (2304 * 384 + 384) + (384 * 192 + 192) + (192 * 10 + 10)
    assert sizes(cifar_cnn()) == cifar
    femnist = (25 * 32 + 32) + (800 * 64 + 64) + (3136 * 2048 + 2048) + (2048 * 62 + 62)
    assert sizes(femnist_cnn()) == femnist


@pytest.mark.parametrize("network", ["cifar", "femnist"])
def test_convolutional_networks_train_alike_on_both_engines(network: str) -> None:
    rng = np.random.default_rng(0)
    shape = (3, 32, 32) if network == "cifar" else (28, 28)
    x = [rng.integers(0, 256, (n, *shape), dtype=np.uint8) for n in (3, 5)]
    y = [rng.integers(0, 4, n) for n in (3, 5)]
    federation = Federation.from_arrays(x, y, classes=4)
    recipe = Recipe(k=2, rounds=1, local_epochs=1, batch_size=3, step_size=0.01, shared=("conv1",))
    make = (lambda: cifar_cnn(4)) if network == "cifar" else (lambda: femnist_cnn(4))
    job = Job(federation, recipe, make, precision="float64")
    assert isinstance(
        job.engine_of(job.federation.train), LoopEngine
    )  # on a CPU convolutions gain nothing from vmap
    theta, who = start(job).theta, torch.arange(2)
    totals = [
        kind(job.task, recipe, federation.train).train(theta, who, torch.full_like(who, -1), 0).total.total
        for kind in (LoopEngine, VectorisedEngine)
    ]
    for name, value in totals[0].items():
        torch.testing.assert_close(value, totals[1][name])


@pytest.mark.parametrize(
    ("module", "fast"),
    [
        (mlp(4, 3), True),
        (mlp(4, 3, (5, 6)), True),
        (nn.Linear(4, 3), True),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), True),
        (nn.Sequential(nn.ReLU(), nn.Linear(4, 3)), False),
        (nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)), False),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), False),
        (cifar_cnn(), False),
    ],
)
def test_which_models_have_a_fast_path(module: nn.Module, fast: bool) -> None:
    assert (first_layer(module) is not None) == fast


def test_response_norm_is_torchs() -> None:
    x = torch.randn(3, 64, 5, 5, generator=torch.Generator().manual_seed(0))
    expected = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)(x)
    torch.testing.assert_close(ResponseNorm(64)(x), expected)


def test_cifar_initialisation_is_the_authors() -> None:
    theta = make_draw(cifar_cnn)(generator(0, "initial", 0, 0))
    for name, std, bias in (("conv2", 0.05, 0.1), ("fc1", 0.04, 0.1), ("out", 1 / 192, 0.0)):
        assert float(theta[f"{name}.weight"].abs().max()) <= 2 * std
        assert float(theta[f"{name}.weight"].std()) == pytest.approx(0.88 * std, rel=0.05)  # cut at 2 std
        assert theta[f"{name}.bias"].tolist() == pytest.approx([bias] * len(theta[f"{name}.bias"]))


class TestRefusals:
    def task(self, module: nn.Module, **recipe: object) -> None:
        make_task(module, Recipe(**recipe), regression=False, device=CPU)  # type: ignore[arg-type]

    def test_batch_norm(self) -> None:
        module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        with pytest.raises(InvalidInput, match=r"layer 1 is a BatchNorm1d.*use GroupNorm"):
            self.task(module)

    def test_group_norm_is_welcome(self) -> None:
        self.task(nn.Sequential(nn.Linear(2, 4), nn.GroupNorm(2, 4), nn.Linear(4, 2)))

    def test_unknown_or_all_layers_shared(self) -> None:
        with pytest.raises(InvalidInput, match=r"shared: the model has no layer fc9 \(it has: fc1, fc2\)"):
            self.task(mlp(2, 2), shared=("fc9",))
        with pytest.raises(InvalidInput, match="nothing is left to cluster"):
            self.task(mlp(2, 2), shared=("fc1", "fc2"))
        with pytest.raises(InvalidInput, match="l2_layers: the model has no layer head"):
            self.task(mlp(2, 2), l2=1.0, l2_layers=("head",))

    def test_nothing_to_train(self) -> None:
        with pytest.raises(InvalidInput, match="no parameters"):
            self.task(nn.Flatten())

    def test_a_module_that_cannot_draw_anew(self) -> None:
        class Own(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.w = nn.Parameter(torch.zeros(2))

        with pytest.raises(InvalidInput, match="pass a function that makes the model"):
            as_factory(Own())


def test_a_module_that_cannot_be_vectorised_names_the_loop() -> None:
    class Moody(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = super().forward(x)
            return y if y.sum() > 0 else -y

    federation = Federation.from_arrays([np.eye(3)] * 2, [np.arange(3)] * 2)
    with pytest.raises(InvalidInput, match=r'cannot be vectorised .*use engine "loop"'):
        fit(Job(federation, Recipe(k=2, rounds=1), lambda: Moody(3, 3)))
    fit(Job(federation, Recipe(k=2, rounds=1), lambda: Moody(3, 3), engine="loop"))


def test_a_module_is_drawn_anew_and_left_as_it_was() -> None:
    module = mlp(3, 2)
    before = copy.deepcopy(module.state_dict())
    draw = make_draw(as_factory(module))
    a, b = draw(generator(0, "initial", 0)), draw(generator(0, "initial", 1))
    assert not torch.equal(a["fc1.weight"], b["fc1.weight"])
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
