"""Clustered federated learning: IFCA, its baselines, its experiments."""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    """The estimator, once it is asked for: it brings scikit-learn, which most processes do without."""
    if name in ("IFCA", "FewerClustersWarning"):
        from ifca import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'ifca' has no attribute {name!r}")
