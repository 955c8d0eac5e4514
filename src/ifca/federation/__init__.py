"""A federation by command: Flower apps that read the same TOML as 'ifca run'. Needs the extra [flower].

The apps are imported when they are asked for: the SuperLink and its gate do without torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ifca.federation.apps import client_app, server_app
else:

    def __getattr__(name: str) -> Any:
        """An app, imported now."""
        if name not in __all__:
            raise AttributeError(f"module 'ifca.federation' has no attribute {name!r}")
        from ifca.federation import apps

        return getattr(apps, name)


__all__ = ["client_app", "server_app"]
