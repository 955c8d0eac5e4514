"""The SuperLink: its address, its TLS files, the public keys of its clients, its command line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from ifca.core.errors import InvalidInput
from ifca.federation.keys import (
    CA,
    CERTIFICATE,
    CLIENTS,
    KEY,
    check_pair,
    check_public,
    check_valid,
)
from ifca.federation.processes import check_port
from ifca.federation.task_executor import TASK_SECRET, executor_command


@dataclass(frozen=True)
class SuperLinkAddress:
    """Where the SuperLink listens, and its folder of certificates and keys."""

    host: str
    port: int
    tls: Path | None  # the folder of 'ifca federate keys'; None: anybody may, in plain text

    def check(self) -> None:
        """Refuse what cannot be opened, before anything is started."""
        if self.tls is not None:
            for name in (CA, CERTIFICATE, KEY):
                if not (self.tls / name).is_file():
                    raise InvalidInput(f"{self.tls}: has no {name}; 'ifca federate keys' makes such a folder")
            check_valid(self.tls / CERTIFICATE)
            check_pair(self.tls / CERTIFICATE, self.tls / KEY)
            if not self.public_keys():
                raise InvalidInput(f"{self.tls / CLIENTS}: has no client's key (.pub); nobody could join")
            for key in self.public_keys():
                check_public(key)
            self.check_names()
        check_port(self.host, self.port)

    def public_keys(self) -> list[Path]:
        """The clients' public keys."""
        return sorted((self.tls / CLIENTS).glob("*.pub")) if self.tls else []

    def check_names(self) -> None:
        """Refuse one key under two names: the second would be nobody's."""
        seen: dict[bytes, Path] = {}
        for key in self.public_keys():
            other = seen.setdefault(b" ".join(key.read_bytes().split()[:2]), key)
            if other != key:
                raise InvalidInput(f"{key}: is the same key as {other.name}")

    @property
    def local(self) -> str:
        """The address as this machine itself reaches it."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"{host}:{self.port}"

    def command(self, work: Path) -> list[str]:
        """flower-superlink behind the gate; its apps are run by a process of ours (task_executor.py)."""
        command = [
            sys.executable,
            "-m",
            "ifca.federation.gate",
            "--host",
            self.host,
            "--port",
            str(self.port),
        ]
        command += ["--database", str(work / "state.db"), "--isolation", "process"]
        command += ["--superexec-auth-secret-file", str(work / TASK_SECRET)]
        if self.tls is None:
            return [*command, "--insecure"]
        files = {"ca-certfile": CA, "certfile": CERTIFICATE, "keyfile": KEY}
        paths = [part for name, file in files.items() for part in (f"--ssl-{name}", str(self.tls / file))]
        return [*command, *paths, "--enable-supernode-auth"]

    def executor(self, work: Path) -> list[str]:
        """The process that runs the server's app."""
        ca = None if self.tls is None else self.tls / CA
        return executor_command(self.local, ca, work / TASK_SECRET)
