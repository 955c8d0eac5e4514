"""Administration of a SuperLink behind its gate: the clients' keys, the run; whether the gate is there."""

from __future__ import annotations

import http.client
import ssl
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from ifca.engines.flower.private_api import CONTROL, FlowerChanged, get
from ifca.federation.gate import FLEET, HEADER, MARK, PROBE, PUSHES
from ifca.federation.keys import CA
from ifca.federation.processes import ProcessFailed
from ifca.federation.superlink import SuperLinkAddress

PATIENCE = 60.0  # seconds; others may use up the connections for a while
NOT_CONNECTED = ("ConnectError", "ConnectTimeout")  # nothing was sent


class Control:
    """The Control API of one SuperLink, for who knows the secret of its run."""

    def __init__(self, address: SuperLinkAddress, secret: bytes) -> None:
        self.address = address
        ca = None if address.tls is None else (address.tls / CA).read_bytes()
        version = get(CONTROL, "RuntimeVersionHttpInterceptor")(component_name="flwr CLI")
        self._client = get(CONTROL, "ControlHttpClient").from_server_address(
            address.local, ca is None, ca, interceptors=[version, _WithSecret(secret)]
        )

    def _call(self, method: str, message: str, *, patience: float = PATIENCE, **fields: Any) -> Any:
        """patience: seconds in which a connection is tried again that did not come about."""
        call, request = getattr(self._client, method), get(CONTROL, message)(**fields)
        deadline = time.monotonic() + patience
        while True:
            try:
                return call(request)
            except Exception as reason:
                if type(reason).__name__ not in NOT_CONNECTED or time.monotonic() > deadline:
                    cause = f"{type(reason).__name__}: {reason}"
                    raise ProcessFailed(
                        f"the SuperLink at {self.address.local} refused {method} ({cause})"
                    ) from reason
            time.sleep(1)

    def register(self) -> list[str]:
        """Register the clients' keys under their names, revoke those whose file is gone; names of these."""
        wanted = public_keys(self.address)
        known = {node.public_key: node for node in self._call("ListNodes", "ListNodesRequest").nodes_info}
        gone = [node for key, node in known.items() if wanted.get(node.name) != key]
        for node in gone:
            self._call("UnregisterNode", "UnregisterNodeRequest", node_id=node.node_id)
        for name, key in wanted.items():
            if key not in known or known[key] in gone:
                self._call("RegisterNode", "RegisterNodeRequest", public_key=key, name=name)
        return sorted(node.name for node in gone)

    def submit(self, app: Path) -> int:
        """Submit an app as a run; its id."""
        content = get(CONTROL, "build_fab_from_disk")(app)
        fab = get(CONTROL, "Fab")(content=content)
        return int(self._call("StartRun", "StartRunRequest", fab=fab).run_id)

    def status(self, run: int) -> tuple[str, str]:
        """How a run stands: starting, running, finished; and what Flower says of it."""
        found = self._call("ListRuns", "ListRunsRequest", patience=0, run_id=run).run_dict[run].status
        return str(found.status), ", ".join(filter(None, (found.sub_status, found.details)))

    def close(self) -> None:
        """End the connection."""
        self._client.close()


class _WithSecret:
    """Adds the secret to every request."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def intercept(self, context: Any, call_next: Any) -> Any:
        """As Flower's interceptors."""
        context.request.headers[HEADER.decode()] = self.secret.decode()
        return call_next(context)


def public_keys(address: SuperLinkAddress) -> dict[str, bytes]:
    """The clients' keys as Flower writes them (PEM), by name."""
    kind = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return {
        file.stem: serialization.load_ssh_public_key(file.read_bytes()).public_bytes(*kind)
        for file in address.public_keys()
    }


def check_gate(address: SuperLinkAddress, secret: bytes) -> None:
    """Refuse a SuperLink that lets a stranger in: what if Flower called the gate no more?

    secret: lets the gate know that no stranger is to be told of; it opens nothing.
    """
    paths = {"/v1/control/list-nodes": 0, "/openapi.json": 0, f"{FLEET}{PUSHES[1]}": 2**30}
    if address.tls is not None:
        paths[f"{FLEET}pull-messages"] = 0
    for path, size in paths.items():
        if not _refuses(address, secret, path, size):
            raise FlowerChanged(
                f"the gate does not stand before Flower's SuperLink: it let a stranger's request to {path} "
                "pass; the server is not opened"
            )


def _refuses(address: SuperLinkAddress, secret: bytes, path: str, size: int) -> bool:
    """Whether the gate refuses a request without key and secret that announces so many bytes."""
    host, _, port = address.local.rpartition(":")
    if address.tls is None:
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=5)
    else:
        context = ssl.create_default_context(cafile=str(address.tls / CA))
        connection = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=5, context=context)
    try:
        connection.putrequest("POST", path)
        connection.putheader("Content-Type", "application/protobuf")
        connection.putheader("Content-Length", str(size))
        connection.putheader(PROBE.decode(), secret.decode())
        connection.endheaders()
        return connection.getresponse().getheader(MARK.decode()) is not None
    except TimeoutError:  # it waits for the body
        return False
    except OSError as reason:
        raise ProcessFailed(f"the SuperLink at {address.local} does not answer ({reason})") from reason
    finally:
        connection.close()
