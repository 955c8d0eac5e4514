"""Which networks a GPU runs by hand: those that are a plain chain, and no others."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from ifca.engines.cuda.chain import Norm, Pool, chain_of
from ifca.models import cifar_cnn, femnist_cnn, mlp


def small(*middle: nn.Module, conv: nn.Module | None = None) -> nn.Sequential:
    conv = nn.Conv2d(3, 16, 3, padding=1) if conv is None else conv
    return nn.Sequential(conv, nn.ReLU(), *middle, nn.Flatten(), nn.Linear(16 * 64, 10))


def test_the_papers_network() -> None:
    chain = chain_of(cifar_cnn())
    assert chain is not None
    assert [conv.weight for conv in chain.convs] == ["conv1.weight", "conv2.weight"]
    assert [[type(layer) for layer in conv.after] for conv in chain.convs] == [[Pool, Norm], [Norm, Pool]]
    assert [weight for weight, _ in chain.dense] == ["fc1.weight", "fc2.weight", "out.weight"]
    assert len(chain.before) == 2


def test_other_chains() -> None:
    without = chain_of(cifar_cnn(lrn=False))
    assert without is not None
    assert without.convs[0].after == (Pool(3, 2, 1),)
    leaf = chain_of(femnist_cnn())
    assert leaf is not None
    assert [conv.size for conv in leaf.convs] == [5, 5]
    assert chain_of(small()) is not None


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 16, 3),
        nn.Conv2d(3, 16, 3, padding=1, stride=2),
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.Conv2d(3, 16, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 16, 3, padding=1, groups=2),
        nn.Conv2d(3, 16, (3, 5), padding=(1, 2)),
        nn.Conv2d(3, 16, 1),
        nn.Conv2d(3, 24, 3, padding=1),
    ],
)
def test_other_convolutions_are_left_to_torch(conv: nn.Module) -> None:
    assert chain_of(small(conv=conv)) is None


@pytest.mark.parametrize(
    "middle", [nn.AvgPool2d(2), nn.MaxPool2d(2, ceil_mode=True), nn.Tanh(), nn.GroupNorm(2, 16)]
)
def test_other_layers_are_left_to_torch(middle: nn.Module) -> None:
    assert chain_of(small(middle)) is None


def test_other_modules_are_left_to_torch() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    hooked = small()
    hooked[1].register_forward_hook(lambda *_: None)
    assert chain_of(hooked) is None
    assert chain_of(mlp(12, 3)) is None
    assert chain_of(Own()) is None
    assert chain_of(None) is None
