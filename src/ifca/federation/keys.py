"""Keys for a trial federation: a CA, the server's certificate, and a key pair for each client."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ifca.core.errors import InvalidInput

CA, CERTIFICATE, KEY, CLIENTS = "ca.crt", "server.crt", "server.key", "clients"
Private = ec.EllipticCurvePrivateKey


def make_keys(
    folder: Path, clients: int | Sequence[str], hosts: tuple[str, ...] = (), days: int = 365
) -> None:
    """Write ca.crt, ca.key, server.crt, server.key and clients/NAME(.pub); private keys are 0600.

    clients: their names, or how many: client-0, client-1, ... The name of its key is a client's name. hosts:
    names and addresses by which clients reach the server, besides this machine's own.
    """
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInput(f"{folder}: already holds something; keys are never written over")
    named = [f"client-{i}" for i in range(clients)] if isinstance(clients, int) else list(clients)
    if not named or days < 1:
        raise InvalidInput(f"clients and days must be at least 1, got {len(named)} and {days}")
    for one in named:
        if Path(one).name != one or one.startswith(".") or not one.isprintable() or named.count(one) > 1:
            raise InvalidInput(f"{one!r}: is no name for a key file, or is there twice")
    (folder / CLIENTS).mkdir(parents=True)
    authority, server = _new(), _new()
    name = _name("ifca trial CA")
    root = _certificate(name, authority.public_key(), name, days)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    root = root.add_extension(_usage(signs_certificates=True), critical=True)
    _write(folder / CA, root.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    leaf = _certificate(_name("ifca server"), server.public_key(), name, days)
    leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    leaf = leaf.add_extension(_usage(signs_certificates=False), critical=True)
    names = x509.SubjectAlternativeName([_host(host) for host in ("localhost", "127.0.0.1", "::1", *hosts)])
    leaf = leaf.add_extension(names, critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    leaf = leaf.add_extension(issuer, critical=False)
    signed = leaf.sign(authority, hashes.SHA256())
    _write(folder / CERTIFICATE, signed.public_bytes(serialization.Encoding.PEM))
    _write(folder / "ca.key", _pem(authority), private=True)
    _write(folder / KEY, _pem(server), private=True)
    for one in named:
        write_client_key(folder / CLIENTS / one)


def check_valid(certificate: Path) -> None:
    """Refuse a certificate that every client would refuse."""
    try:
        end = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    except ValueError as reason:
        raise InvalidInput(f"{certificate}: is not a certificate ({reason})") from reason
    if end < datetime.now(timezone.utc):
        raise InvalidInput(f"{certificate}: expired on {end:%Y-%m-%d}; 'ifca federate keys' makes new ones")


def check_pair(certificate: Path, key: Path) -> None:
    """Refuse a server's key that is not the one of its certificate."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as reason:
        raise InvalidInput(f"{key}: is not the private key of {certificate.name} ({reason})") from reason


def check_public(key: Path) -> None:
    """Refuse a file that is no client's public key."""
    try:
        serialization.load_ssh_public_key(key.read_bytes())
    except (ValueError, UnsupportedAlgorithm) as reason:
        raise InvalidInput(f"{key}: is not a public key ({reason})") from reason


def check_private(key: Path) -> None:
    """Refuse a file that is no client's private key, before a server is asked."""
    if not key.is_file():
        raise InvalidInput(f"{key}: no such key file")
    try:
        fits = isinstance(serialization.load_ssh_private_key(key.read_bytes(), None), Private)
    except (ValueError, TypeError, UnsupportedAlgorithm) as reason:
        raise InvalidInput(f"{key}: is not a private key without a password ({reason})") from reason
    if not fits:
        raise InvalidInput(f"{key}: is not an elliptic-curve key, which Flower asks for")


def write_client_key(file: Path) -> None:
    """A client's key pair, as ssh-keygen -t ecdsa -b 384 makes it: FILE and FILE.pub."""
    key = _new()
    kind, public = serialization.PrivateFormat.OpenSSH, serialization.PublicFormat.OpenSSH
    nothing = serialization.NoEncryption()
    _write(file, key.private_bytes(serialization.Encoding.PEM, kind, nothing), private=True)
    written = key.public_key().public_bytes(serialization.Encoding.OpenSSH, public)
    _write(file.with_name(file.name + ".pub"), written + b"\n")


def _new() -> Private:
    return ec.generate_private_key(ec.SECP384R1())


def _pem(key: Private) -> bytes:
    kind = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


def _write(file: Path, content: bytes, private: bool = False) -> None:
    with os.fdopen(
        os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644), "wb"
    ) as out:
        out.write(content)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
