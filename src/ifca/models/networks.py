"""The paper's networks as torch modules. Any other torch.nn.Module can take their place."""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn


def linear(inputs: int, outputs: int = 1, *, bias: bool = False) -> nn.Module:
    """The paper's linear model <x, theta>; bias: with an intercept, which all data but the paper's need."""
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), fc1=nn.Linear(inputs, outputs, bias=bias)))


def logistic(inputs: int, classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return linear(inputs, classes, bias=True)


def mlp(inputs: int, outputs: int, hidden: tuple[int, ...] = (200,)) -> nn.Module:
    """Fully connected ReLU network, layers fc1, fc2, ...; 784-200-10 is the paper's for MNIST."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for i, (a, b) in enumerate(zip((inputs, *hidden), (*hidden, outputs), strict=True), start=1):
        layers[f"fc{i}"] = nn.Linear(a, b)
        layers[f"relu{i}"] = nn.ReLU()
    layers.popitem()  # no ReLU after the last layer
    return nn.Sequential(layers)


class ChannelsFirst(nn.Module):
    """Images [n, height, width] or [n, height, width, channels] -> [n, channels, height, width]."""

    def forward(self, x: Tensor) -> Tensor:
        """Grey or coloured."""
        return x.unsqueeze(1) if x.dim() == 3 else x.permute(0, 3, 1, 2)


def cnn(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Two 3 x 3 convolutions of 16 and 32 channels, each pooled by 2, and a hidden layer of 64.

    shape: of an image, [height, width], [channels, height, width] or [height, width, channels].
    """
    last = len(shape) == 3 and shape[0] not in (1, 3, 4) and shape[2] in (1, 3, 4)
    channels, height, width = (1, *shape) if len(shape) == 2 else (shape[2], *shape[:2]) if last else shape
    return nn.Sequential(
        OrderedDict(
            channels=ChannelsFirst() if last or len(shape) == 2 else nn.Identity(),
            conv1=nn.Conv2d(channels, 16, 3, padding=1),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(16, 32, 3, padding=1),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(32 * (height // 4) * (width // 4), 64),
            relu3=nn.ReLU(),
            out=nn.Linear(64, outputs),
        )
    )


class Standardise(nn.Module):
    """Each image to mean 0 and variance 1 (with the usual lower bound on the deviation)."""

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, channels, height, width]."""
        flat = x.flatten(1)
        low = 1 / math.sqrt(flat.shape[1])
        scale = flat.std(dim=1, correction=0, keepdim=True).clamp(min=low)
        return ((flat - flat.mean(dim=1, keepdim=True)) / scale).view_as(x)


class CentreCrop(nn.Module):
    """The middle of each image."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, channels, height, width]."""
        top, left = (x.shape[-2] - self.size) // 2, (x.shape[-1] - self.size) // 2
        return x[..., top : top + self.size, left : left + self.size]


class ResponseNorm(nn.Module):
    """Local response normalisation as a product with a band matrix: the same as torch's, and much faster."""

    def __init__(self, channels: int, size: int = 9, alpha: float = 0.001, beta: float = 0.75) -> None:
        super().__init__()
        self.beta = beta
        near = (torch.arange(channels)[:, None] - torch.arange(channels)).abs() <= size // 2
        self.band: Tensor
        self.register_buffer("band", near.float() * alpha / size, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, channels, height, width]."""
        squares = (x * x).flatten(2)  # [n, channels, L]
        return x / (1 + self.band @ squares).pow(self.beta).view_as(x)


def cifar_cnn(classes: int = 10, *, lrn: bool = True) -> nn.Module:
    """The authors' CIFAR network (D7): two 5x5x64 convolutions, fc 384, fc 192; 24 x 24 crops."""
    norms = [ResponseNorm(64) if lrn else nn.Identity() for _ in "12"]
    model = nn.Sequential(
        OrderedDict(
            crop=CentreCrop(24),
            standardise=Standardise(),
            conv1=nn.Conv2d(3, 64, 5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(3, 2, padding=1),
            norm1=norms[0],
            conv2=nn.Conv2d(64, 64, 5, padding=2),
            relu2=nn.ReLU(),
            norm2=norms[1],
            pool2=nn.MaxPool2d(3, 2, padding=1),
            flatten=nn.Flatten(),
            fc1=nn.Linear(64 * 6 * 6, 384),
            relu3=nn.ReLU(),
            fc2=nn.Linear(384, 192),
            relu4=nn.ReLU(),
            out=nn.Linear(192, classes),
        )
    )
    for name, std, bias in (
        ("conv1", 0.05, 0.0),
        ("conv2", 0.05, 0.1),
        ("fc1", 0.04, 0.1),
        ("fc2", 0.04, 0.1),
        ("out", 1 / 192, 0.0),
    ):
        layer = model.get_submodule(name)
        nn.init.trunc_normal_(layer.get_parameter("weight"), std=std, a=-2 * std, b=2 * std)
        nn.init.constant_(layer.get_parameter("bias"), bias)
    return model


def femnist_cnn(classes: int = 62) -> nn.Module:
    """LEAF's FEMNIST network: conv 5x5x32, pool, conv 5x5x64, pool, fc 2048; 28 x 28 images."""
    return nn.Sequential(
        OrderedDict(
            channel=nn.Unflatten(1, (1, 28)),  # [n, 28, 28] -> [n, 1, 28, 28]
            conv1=nn.Conv2d(1, 32, 5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 64, 5, padding=2),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(64 * 7 * 7, 2048),
            relu3=nn.ReLU(),
            out=nn.Linear(2048, classes),
        )
    )


def has_convolutions(module: nn.Module | None) -> bool:
    """Whether the model has convolutions, which gain nothing from other clients' beside them."""
    return module is not None and any(isinstance(part, nn.modules.conv._ConvNd) for part in module.modules())
