"""The networks of the sources of the anchor tables."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

HEAD = "out"  # the last layer's name


def clove_mnist() -> nn.Module:
    """CLoVE's network for MNIST: two 5 x 5 convolutions of 6 and 16 channels, each pooled, and one layer."""
    return nn.Sequential(
        OrderedDict(
            channel=nn.Unflatten(1, (1, 28)),  # [n, 28, 28] -> [n, 1, 28, 28]
            conv1=nn.Conv2d(1, 6, 5),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 16, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            out=nn.Linear(256, 10),
        )
    )


def clove_cifar() -> nn.Module:
    """CLoVE's network for CIFAR-10: 3 x 3 convolutions of 64 to 512 channels with batch norm, each pooled;
    layers of 1024 and 512, each with dropout.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, (a, b) in enumerate(((3, 64), (64, 128), (128, 256), (256, 512)), start=1):
        layers[f"conv{i}"] = nn.Conv2d(a, b, 3, padding=1)
        layers[f"norm{i}"] = nn.BatchNorm2d(b)
        layers[f"relu{i}"] = nn.ReLU()
        layers[f"pool{i}"] = nn.MaxPool2d(2)
    layers["flatten"] = nn.Flatten()
    for i, (a, b) in enumerate(((2048, 1024), (1024, 512)), start=1):
        layers[f"fc{i}"] = nn.Linear(a, b)
        layers[f"fc{i}_relu"] = nn.ReLU()
        layers[f"fc{i}_dropout"] = nn.Dropout(0.5)
    layers[HEAD] = nn.Linear(512, 10)
    return nn.Sequential(layers)


ALL_BUT_HEAD = ("conv1", "norm1", "conv2", "norm2", "conv3", "norm3", "conv4", "norm4", "fc1", "fc2")
"""Of clove_cifar: what clusters share where only the last layer is a cluster's own."""


def pfllib_cnn(channels: int, size: int) -> nn.Module:
    """PFLlib's network: two 5 x 5 convolutions of 32 and 64 channels, each pooled, and a layer of 512.

    size: height and width of an image.
    """
    side = ((size - 4) // 2 - 4) // 2
    first = nn.Unflatten(1, (1, size)) if channels == 1 else nn.Identity()
    return nn.Sequential(
        OrderedDict(
            channel=first,
            conv1=nn.Conv2d(channels, 32, 5),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 64, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(64 * side * side, 512),
            relu3=nn.ReLU(),
            out=nn.Linear(512, 10),
        )
    )
