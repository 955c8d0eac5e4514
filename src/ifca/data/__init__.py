"""Federations: every loader returns the same type; randomness is an argument."""

from ifca.data.clients import Client, Clients
from ifca.data.dealing import Deal
from ifca.data.federation import Federation
from ifca.data.partition import partition
from ifca.data.population import Population
from ifca.data.public.cifar import read_cifar, rotated_cifar
from ifca.data.public.digits import rotated_digits
from ifca.data.public.femnist import femnist
from ifca.data.public.mnist import read_idx, read_mnist, rotated_mnist
from ifca.data.public.regressions import mixture_of_regressions
from ifca.data.public.writers import mnist_writers
from ifca.data.sources.folder import read_client, read_folder, write_client

__all__ = [
    "Client",
    "Clients",
    "Deal",
    "Federation",
    "Population",
    "femnist",
    "mixture_of_regressions",
    "mnist_writers",
    "partition",
    "read_cifar",
    "read_client",
    "read_folder",
    "read_idx",
    "read_mnist",
    "rotated_cifar",
    "rotated_digits",
    "rotated_mnist",
    "write_client",
]
