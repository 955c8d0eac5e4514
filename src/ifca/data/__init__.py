"""Federations: every loader returns the same type; randomness is an argument.

Names are imported when they are first asked for: whoever reads a config needs none of the loaders.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers read; a test compares it with _HOMES
    from ifca.data.clients import Client, Clients
    from ifca.data.dealing import Deal
    from ifca.data.federation import Federation
    from ifca.data.partitioning import partition
    from ifca.data.population import Population
    from ifca.data.public.cifar import read_cifar, rotated_cifar
    from ifca.data.public.digits import rotated_digits
    from ifca.data.public.femnist import femnist
    from ifca.data.public.mnist import read_idx, read_mnist, rotated_mnist
    from ifca.data.public.regressions import mixture_of_regressions
    from ifca.data.public.writers import mnist_writers
    from ifca.data.sources.folder import read_client, read_folder, write_client
else:

    def __getattr__(name: str) -> Any:
        """A name of this room, imported now."""
        if name not in _HOMES:
            raise AttributeError(f"module 'ifca.data' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


_HOMES = {
    "Client": "ifca.data.clients",
    "Clients": "ifca.data.clients",
    "Deal": "ifca.data.dealing",
    "Federation": "ifca.data.federation",
    "partition": "ifca.data.partitioning",
    "Population": "ifca.data.population",
    "read_cifar": "ifca.data.public.cifar",
    "rotated_cifar": "ifca.data.public.cifar",
    "rotated_digits": "ifca.data.public.digits",
    "femnist": "ifca.data.public.femnist",
    "read_idx": "ifca.data.public.mnist",
    "read_mnist": "ifca.data.public.mnist",
    "rotated_mnist": "ifca.data.public.mnist",
    "mixture_of_regressions": "ifca.data.public.regressions",
    "mnist_writers": "ifca.data.public.writers",
    "read_client": "ifca.data.sources.folder",
    "read_folder": "ifca.data.sources.folder",
    "write_client": "ifca.data.sources.folder",
}

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
