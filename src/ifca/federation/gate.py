"""The gate before Flower's SuperLink: who is let in to what, and how much one may send. An ASGI app.

Flower serves clients (the Fleet API), administration (the Control API: submit a run, register a key) and its
own processes (the Runtime API) on one port. It reads a request before it asks whose it is, and without an
account service it lets everybody administer. Started as a module, this is flower-superlink with the same
options, behind a gate that looks at a request's head only:

- clients: those whose key signed the head, where there are keys; no request is larger than a part of a model
- replies: as large as the server expects them, in all
- administration: from this machine, with the secret of this run
- Flower's processes, which have tokens: from this machine
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import json
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Any, Any], Awaitable[None]]
PUSHES = ("push-messages", "push-object")  # a reply begins with the one, its parts follow by the other
FLEET, RUNTIME, HEALTH = "/v1/fleet/", "/v1/runtime/", "/health"
SECRET, KEYS, LIMIT, TURNED_AWAY = "admin.secret", "keys.json", "reply.limit", "turned-away.jsonl"
FOLDER = "IFCA_GATE"  # environment: the folder with these files
HEADER, PROBE, MARK = b"ifca-admin-secret", b"ifca-gate-probe", b"refused-by"
PUBLIC_KEY, SIGNATURE, TIMESTAMP = b"flwr-public-key", b"flwr-signature", b"flwr-timestamp"
LARGEST_PART, LARGEST_CALL, LARGEST_HERE = 8 * 2**20, 2**20, 64 * 2**20  # bytes of one request
OLDEST = 300.0  # seconds; Flower allows as many between the clocks of a client and the server


class Refusal(Exception):
    """A request that is not let in: the status and the reason that it is answered with."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Gate:
    """Passes requests on to an app, or turns them away."""

    def __init__(self, app: Asgi, folder: Path) -> None:
        self.app, self.folder = app, folder
        self.secret = (folder / SECRET).read_bytes()
        told = json.loads((folder / KEYS).read_text()) if (folder / KEYS).exists() else None
        self.keys = None if told is None else {pem.encode(): name for name, pem in told.items()}
        self._sent: dict[bytes, int] = {}  # bytes of the reply that a client is sending
        self._told: dict[tuple[str, str], float] = {}  # when was said last who was turned away and why

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass on or refuse one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        try:
            largest = self.check(scope)
        except Refusal as reason:
            if (PROBE, self.secret) not in scope["headers"]:
                self.note(address_of(scope), str(reason))
            headers = [(b"connection", b"close"), (b"content-type", b"text/plain"), (MARK, b"ifca")]
            await send({"type": "http.response.start", "status": reason.status, "headers": headers})
            await send({"type": "http.response.body", "body": f"{reason}\n".encode()})
            return
        await self.app(scope, _bounded(receive, largest), send)

    def check(self, scope: Scope) -> int:
        """Refuse what must not be passed on; bytes that the request may have."""
        if scope["type"] != "http":
            raise Refusal(403, "only HTTP is spoken here")
        headers, path = _once(scope["headers"]), scope["path"]
        size = _length(headers)
        if path.startswith(FLEET):
            largest = LARGEST_PART if path == f"{FLEET}{PUSHES[1]}" else LARGEST_CALL
            key = self._whose(headers)
            if b"transfer-encoding" in headers:
                raise Refusal(411, f"{self._name(key)}: a request that does not say its length")
            if size > largest:
                raise Refusal(413, f"{self._name(key)}: a request of {size} bytes, {largest} are allowed")
            self._count(path, key, size)
            return largest
        if path != HEALTH and not is_from_here(scope):
            raise Refusal(403, "only from the server's own machine")
        known = hmac.compare_digest(headers.get(HEADER, b""), self.secret)
        if path != HEALTH and not path.startswith(RUNTIME) and not known:
            raise Refusal(403, "only for who started the server: the secret of this run is missing")
        if size > (largest := 0 if path == HEALTH else LARGEST_HERE):
            raise Refusal(413, f"a request of {size} bytes, {largest} are allowed")
        return largest

    def _whose(self, headers: dict[bytes, bytes]) -> bytes:
        """The public key that signed a request's head; where keys are asked for, it is a known one."""
        try:
            key = base64.b64decode(headers[PUBLIC_KEY], validate=True)
        except (KeyError, ValueError):
            key = b""
        if self.keys is None:
            return key
        if key not in self.keys:
            raise Refusal(401, "no client's key of this server")
        if not is_signed(key, headers):
            raise Refusal(401, f"{self.keys[key]}: not signed with this client's key, or by a wrong clock")
        return key

    def _count(self, path: str, key: bytes, size: int) -> None:
        """Add up the parts of a client's reply."""
        if path == f"{FLEET}{PUSHES[0]}":
            self._sent[key] = 0
        elif path == f"{FLEET}{PUSHES[1]}":
            self._sent[key] = self._sent.get(key, 0) + size
            if self._sent[key] > (most := self.largest_reply()):
                raise Refusal(413, f"{self._name(key)}: its reply has more than {most} bytes")

    def largest_reply(self) -> int:
        """Bytes of a reply with all its parts, as the server says, and its app as soon as it knows better."""
        return int((self.folder / LIMIT).read_text())

    def _name(self, key: bytes) -> str:
        return (self.keys or {}).get(key, "a client")

    def note(self, address: str, reason: str) -> None:
        """Tell whoever runs the server who was turned away, the same at most once a minute."""
        now, told = time.time(), (address, reason.rpartition(":")[2])
        if now < self._told.get(told, 0.0) + 60 or len(self._told) > 1000:
            self._told = {one: at for one, at in self._told.items() if now < at + 60}
            return
        self._told[told] = now
        with (self.folder / TURNED_AWAY).open("a") as file:
            file.write(json.dumps({"from": address, "why": reason}) + "\n")


def _once(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name; of those that decide, none may stand there twice."""
    found = dict(headers)
    for name in (HEADER, PUBLIC_KEY, SIGNATURE, TIMESTAMP):
        if sum(name == one for one, _ in headers) > 1:
            raise Refusal(400, "a header that stands there twice")
    return found


def _bounded(receive: Any, largest: int) -> Any:
    """Receives no more than so many bytes of a body, whatever its head said."""
    left = largest

    async def bounded() -> Any:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        return message if left >= 0 else {"type": "http.disconnect"}

    return bounded


def _length(headers: dict[bytes, bytes]) -> int:
    try:
        return int(headers.get(b"content-length", b"0"))
    except ValueError:
        raise Refusal(400, "a length that is none") from None


def is_signed(key: bytes, headers: dict[bytes, bytes]) -> bool:
    """Whether a head has a time, not long ago, that is signed with a key (PEM)."""
    try:
        public = serialization.load_pem_public_key(key)
        when = datetime.fromisoformat(headers[TIMESTAMP].decode("ascii"))
        signature = base64.b64decode(headers[SIGNATURE], validate=True)
        assert isinstance(public, ec.EllipticCurvePublicKey)
        public.verify(signature, headers[TIMESTAMP], ec.ECDSA(hashes.SHA256()))
        return abs((datetime.now(timezone.utc) - when).total_seconds()) < OLDEST
    except (KeyError, ValueError, TypeError, AssertionError, InvalidSignature):
        return False


def address_of(scope: Scope) -> str:
    """Where a request comes from."""
    return str(scope["client"][0]) if scope.get("client") else "?"


def is_from_here(scope: Scope) -> bool:
    """Whether a request comes from this machine: over loopback, or from the address it arrived at."""
    client, server = address_of(scope), (scope.get("server") or ("",))[0]
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback or client == server


def main() -> None:
    """Start the SuperLink behind this gate."""
    from ifca.engines.flower.private_api import SUPERLINK, FlowerChanged, check, get
    from ifca.federation.door import serve

    check(SUPERLINK)
    for name, value in (("PUBLIC_KEY_HEADER", PUBLIC_KEY), ("SIGNATURE_HEADER", SIGNATURE)):
        if get(SUPERLINK, f"FLEET_HTTP_{name}").encode() != value:
            raise FlowerChanged(f"Flower's clients no longer send their key as {value.decode()}")
    if not {("POST", f"{FLEET}{call}") for call in PUSHES} <= get(SUPERLINK, "PROTOBUF_REQUEST_TYPES").keys():
        raise FlowerChanged(f"Flower's clients no longer send replies to {FLEET}{PUSHES[0]}")
    folder, uvicorn = Path(os.environ.pop(FOLDER)), get(SUPERLINK, "uvicorn")

    def run(app: Asgi, **options: Any) -> None:
        gate = Gate(app, folder)
        serve(gate, gate.note, **options)

    uvicorn.run = run
    get(SUPERLINK, "flower_superlink")()


if __name__ == "__main__":
    main()
