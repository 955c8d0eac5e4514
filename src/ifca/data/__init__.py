"""Federations: every loader returns the same type; randomness is an argument."""

from ifca.data.clients import Client, Clients
from ifca.data.digits import rotated_digits
from ifca.data.federation import Federation
from ifca.data.folder import read_client, read_folder, write_client
from ifca.data.synthetic import mixture_of_regressions

__all__ = [
    "Client",
    "Clients",
    "Federation",
    "mixture_of_regressions",
    "read_client",
    "read_folder",
    "rotated_digits",
    "write_client",
]
