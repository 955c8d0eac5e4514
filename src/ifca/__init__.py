"""Clustered federated learning: IFCA, its baselines, its experiments."""

from ifca.core.errors import Diverged, IFCAError, InvalidInput
from ifca.data import (
    Client,
    Federation,
    femnist,
    mixture_of_regressions,
    mnist_writers,
    read_folder,
    rotated_cifar,
    rotated_digits,
    rotated_mnist,
)
from ifca.estimator import IFCA, FewerClustersWarning

__version__ = "0.1.0"

__all__ = [
    "IFCA",
    "Client",
    "Diverged",
    "Federation",
    "FewerClustersWarning",
    "IFCAError",
    "InvalidInput",
    "femnist",
    "mixture_of_regressions",
    "mnist_writers",
    "read_folder",
    "rotated_cifar",
    "rotated_digits",
    "rotated_mnist",
]
