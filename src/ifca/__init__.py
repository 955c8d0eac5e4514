"""Clustered federated learning: IFCA, its baselines, its experiments."""

from ifca.core.errors import Diverged, IFCAError, InvalidInput
from ifca.data import Client, Federation, mixture_of_regressions, read_folder, rotated_digits
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
    "mixture_of_regressions",
    "read_folder",
    "rotated_digits",
]
