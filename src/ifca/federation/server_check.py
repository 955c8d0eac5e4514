"""Before a client connects: is there a server at the address, and does its certificate fit ours?"""

from __future__ import annotations

import http.client
import socket
import ssl
from base64 import b64encode
from datetime import datetime, timezone
from http import HTTPStatus
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ifca.core.errors import InvalidInput
from ifca.federation.gate import FLEET, PUBLIC_KEY, SIGNATURE, TIMESTAMP

SECONDS = 5.0


def server_is_reachable(server: str, ca: Path | None) -> bool:
    """Whether a server answers yet; one that must not be joined is refused. ca: None, plain text."""
    host, port = host_and_port(server, "--server")
    try:
        with socket.create_connection((host, port), timeout=SECONDS) as plain:
            try:
                with tls_context(ca).wrap_socket(plain, server_hostname=host):
                    pass
            except ssl.SSLCertVerificationError as reason:
                raise InvalidInput(
                    f"{server}: its certificate is not accepted by {ca} ({reason.verify_message})"
                ) from reason
            except (ssl.SSLError, ConnectionResetError) as reason:
                if ca is None:
                    return True
                raise InvalidInput(f"{server}: does not speak TLS, so it is not joined") from reason
    except OSError:
        return False
    if ca is None:
        raise InvalidInput(f"{server}: asks for TLS; give --key and --ca instead of --insecure")
    return True


def is_listening(place: str, option: str) -> bool:
    """Whether a server listens at an address."""
    try:
        with socket.create_connection(host_and_port(place, option), timeout=SECONDS):
            return True
    except OSError:
        return False


def host_and_port(place: str, option: str) -> tuple[str, int]:
    """HOST:PORT, or [HOST]:PORT."""
    host, colon, port = place.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidInput(f"{option} must be HOST:PORT, got {place}")
    return host.strip("[]"), int(port)


def tls_context(ca: Path | None) -> ssl.SSLContext:
    """The TLS settings of a client: it accepts certificates signed by ca; None: any."""
    if ca is not None:
        try:
            return ssl.create_default_context(cafile=str(ca))
        except (ssl.SSLError, OSError) as reason:
            raise InvalidInput(f"{ca}: holds no certificate ({reason})") from reason
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def knows_key(server: str, ca: Path, key: Path) -> bool:
    """Whether a server's gate lets this client's key in; a server without such a gate does not say no."""
    host, port = host_and_port(server, "--server")
    private = serialization.load_ssh_private_key(key.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    kind = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    now = datetime.now(timezone.utc).isoformat()
    headers = {
        PUBLIC_KEY.decode(): b64encode(private.public_key().public_bytes(*kind)).decode(),
        TIMESTAMP.decode(): now,
        SIGNATURE.decode(): b64encode(private.sign(now.encode(), ec.ECDSA(hashes.SHA256()))).decode(),
    }
    connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=tls_context(ca))
    try:
        connection.request("POST", f"{FLEET}hello", headers=headers)
        return connection.getresponse().status != HTTPStatus.UNAUTHORIZED
    except (OSError, http.client.HTTPException):
        return True  # it was there a moment ago; the SuperNode will say what is wrong
    finally:
        connection.close()
