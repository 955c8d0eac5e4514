"""Flower's SuperLink whose Control API answers this machine only: an ASGI middleware.

Flower serves the Fleet API (clients), the Control API (submit a run, register a key) and its app processes on
one port, and without an account service it does not check who uses the Control API. Started as a module,
this is flower-superlink with the same options, but all except the Fleet API answers this machine only.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Any, Any], Awaitable[None]]
PUBLIC = ("/v1/fleet", "/health")  # open to clients


class LocalAdminMiddleware:
    """Turns away, with 403, requests from elsewhere that are not a client's."""

    def __init__(self, app: Asgi) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass on or refuse one request."""
        if scope["type"] != "http" or scope["path"].startswith(PUBLIC) or is_from_here(scope):
            await self.app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 403, "headers": []})
        await send({"type": "http.response.body", "body": b"only from the server's own machine\n"})


def is_from_here(scope: Scope) -> bool:
    """Whether a request comes from this machine: over loopback, or from the address it arrived at."""
    if not scope.get("client"):
        return False
    client, server = scope["client"][0], (scope.get("server") or ("",))[0]
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback or client == server


def main() -> None:
    """Start the SuperLink with this middleware before all others."""
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    others = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(LocalAdminMiddleware), *others())
    flower_superlink()


if __name__ == "__main__":
    main()
