"""A federation by command: Flower apps that read the same TOML as 'ifca run'. Needs the extra [flower]."""

from ifca.federation.apps import client_app, server_app

__all__ = ["client_app", "server_app"]
