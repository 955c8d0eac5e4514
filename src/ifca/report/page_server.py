"""The page of a run, live: a server for this machine alone, that tells the page when there is news."""

from __future__ import annotations

import json
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ifca.core.errors import IFCAError, InvalidInput
from ifca.report.live_run import LiveRun
from ifca.report.page import article, page
from ifca.report.page.build import MISFIT
from ifca.report.terminal.status import status

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
REST = 5  # times as long as making the content took: training needs the processor, too


class PageServer(ThreadingHTTPServer):
    """Serves one run's page at a port of this machine."""

    daemon_threads = True
    most = 32  # connections at once; a browser has six

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.run = LiveRun(folder)
        self._looking = threading.Lock()
        self._version, self._article = "", ""
        self._rest = 0.0  # the time until which a large page is not made again
        self._places = threading.BoundedSemaphore(self.most)
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as reason:
            why = getattr(reason, "strerror", None) or reason
            raise InvalidInput(f"--port {port}: cannot be used ({why})") from None

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for a connection, or an end to it where there are too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In that thread: answer, and make place for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is no news."""

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def state(self) -> dict[str, str]:
        """Whether there is news, and where the run stands."""
        with self._looking:
            found = self.run.read()
            version = self.run.version()
            if found.state == "running" and self._version and time.monotonic() < self._rest:
                version = self._version
            return {"version": version, "state": found.state, "text": status(found)}

    def content(self) -> str:
        """What the page says now; made again only when something is new."""
        with self._looking:
            version = self.run.version()
            if version != self._version:
                began = time.monotonic()
                self._version, self._article = version, article([self.run.read()])
                self._rest = time.monotonic() + REST * (time.monotonic() - began)
            return self._article

    def whole(self) -> str:
        """The page as it is opened."""
        with self._looking:
            return page([self.run.read()], live=True)


class Handler(BaseHTTPRequestHandler):
    """Answers the three questions that the page asks."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = 10.0  # seconds that a question may take, and a connection be open without one

    def do_GET(self) -> None:
        """The page, its state, its content; nothing else, and to no other host name."""
        hosts = self.headers.get_all("Host") or [""]
        name, _, port = hosts[0].rpartition(":")
        if len(hosts) > 1 or name not in NAMES or port != str(self.server.server_address[1]):
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", f"only for {' and '.join(NAMES)}\n")
            return
        path = self.path.partition("?")[0]
        try:
            if path == "/":
                self._answer(HTTPStatus.OK, "text/html", self.server.whole())
            elif path == "/state":
                self._answer(HTTPStatus.OK, "application/json", json.dumps(self.server.state()))
            elif path == "/content":
                self._answer(HTTPStatus.OK, "text/html", self.server.content())
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", "not found\n")
        except (IFCAError, OSError, *MISFIT) as reason:  # a file in the making, or one that was altered
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{reason}\n")

    def _answer(self, code: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: questions come every second."""
