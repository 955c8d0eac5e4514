"""The SuperLink's door: how many connections are open at once, and how long one may take to speak.

Uvicorn, under Flower, lets everybody in and waits for ever: connections that send half a header use up all
file descriptors.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HANDSHAKE, HEAD, BODY = 10.0, 10.0, 300.0  # seconds for TLS, for the head of a request, for its body
MOST, SPARE = 4096, 128  # connections; descriptors that are kept for files
LARGEST_HEAD = 64 * 1024  # bytes


class Door(socket.socket):
    """A listening socket that holds so many connections, and from one address half of them."""

    def __init__(self, host: str, port: int, most: int, refused: Callable[[str, str], None]) -> None:
        super().__init__(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.bind((host, port))
        self.most, self._refused = most, refused
        self._inside: dict[socket.socket, str] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """The next visitor; one too many is sent away before it has said a word."""
        visitor, address = super().accept()
        if len(self._inside) >= self.most // 2:  # as long as there are few, nobody counts
            self._inside = {one: where for one, where in self._inside.items() if one.fileno() >= 0}
        from_there = Counter(self._inside.values())[address[0]]
        if len(self._inside) >= self.most or from_there >= self.most // 2:
            visitor.close()
            self._refused(address[0], f"{from_there} connections are open from there")
            raise ConnectionAbortedError
        self._inside[visitor] = address[0]
        return visitor, address


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers give up a TLS handshake that takes long."""

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """As asyncio's."""
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = HANDSHAKE
        return await super().create_server(*arguments, **options)


class TimedProtocol(H11Protocol):
    """HTTP of which a request's head and body must be there in time."""

    _deadline: asyncio.TimerHandle | None = None
    _awaited: object = None  # whose end the deadline is: of a head (IDLE) or of a body (SEND_BODY)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A visitor is in."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """A request is answered; the next head may come."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The visitor has gone."""
        super().connection_lost(exc)
        self._stop()

    def _watch(self) -> None:
        state = self.conn.their_state
        if state is self._awaited:
            return
        self._stop()
        seconds = {h11.IDLE: HEAD, h11.SEND_BODY: BODY}.get(state)
        if seconds is not None and not self.transport.is_closing():
            self._awaited = state
            self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._awaited = None


def serve(app: Any, refused: Callable[[str, str], None], **options: Any) -> None:
    """uvicorn.run behind a door. refused: is told the address and the reason."""
    del options["workers"], options["reload"]
    options["access_log"] = False  # clients ask every three seconds
    door = Door(options["host"], options["port"], most_connections(), refused)
    limits = {
        "loop": f"{__name__}:Loop",
        "http": TimedProtocol,
        "h11_max_incomplete_event_size": LARGEST_HEAD,
    }
    config = uvicorn.Config(app, **options, **limits)  # type: ignore[arg-type]
    uvicorn.Server(config).run(sockets=[door])


def most_connections() -> int:
    """As many as the descriptors that this process may have allow; it asks for as many as it may get."""
    if sys.platform == "win32":
        return MOST
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + SPARE if hard == resource.RLIM_INFINITY else min(hard, MOST + SPARE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(2, wanted - SPARE)
