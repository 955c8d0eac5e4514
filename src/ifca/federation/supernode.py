"""'ifca federate client': a SuperNode with one client's data, until it is interrupted."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ifca.core.errors import InvalidInput
from ifca.data import read_client
from ifca.data.problems import refuse
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import kind_of, read_table
from ifca.federation.apps import client_file
from ifca.federation.keys import CA, check_private
from ifca.federation.processes import ProcessFailed, free_port, last_lines, running
from ifca.federation.server_check import server_is_reachable, tls_context

CONNECTING = "connecting to the server"


def join(
    server: str,
    data: Path,
    key: Path | None,
    ca: Path | None,
    insecure: bool,
    patience: float,
    say: Callable[[str], None],
) -> None:
    """Offer one client's data to a server; the data are read here and never sent.

    patience: seconds during which a client that is turned away tries again.
    """
    file = client_file(data).resolve()
    if kind_of(file) in TABLES:  # what its columns are, the server's config says
        read_table(file, refuse)
    else:
        read_client(file)  # refuse a bad file now, not in the first round
    command = [str(Path(sys.executable).with_name("flower-supernode")), "--superlink", server]
    command += ["--port", str(free_port()), "--node-config", f'data="{file}"']
    root = None if insecure else ca or (key.parent.parent / CA if key else None)
    if insecure:
        command.append("--insecure")
    else:
        if key is None or root is None:
            raise InvalidInput(
                "give --key and --ca (both are in a folder of 'ifca federate keys'), or --insecure"
            )
        check_private(key)
        tls_context(root)  # refuse bad files now, not when there is a server
        command += ["--root-certificates", str(root), "--auth-supernode-private-key", str(key)]
    if not server_is_reachable(server, root):
        say(f"client {file.stem}: nobody is at {server} yet, waiting")
        while not server_is_reachable(server, root):
            time.sleep(1)
    deadline = time.monotonic() + patience
    while True:  # the server may not know this key yet, or be another one than the last time
        if _run_once(command, file.stem, say):
            deadline = time.monotonic() + patience
        if time.monotonic() >= deadline:
            break
        time.sleep(1)
    raise ProcessFailed(f"client {file.stem}: ended by the server, or turned away: is its key registered?")


def _run_once(command: list[str], name: str, say: Callable[[str], None]) -> bool:
    """Run a SuperNode until it ends; whether it was ever let in."""
    with tempfile.TemporaryDirectory(prefix="ifca-client-") as folder:
        log, said = Path(folder) / "supernode.log", ""
        with running(command, log, Path(folder) / "home") as node:
            while node.poll() is None:
                if (now := _state(log)) != said:
                    say(f"client {name}: {now}")
                    said = now
                time.sleep(0.5)
        say(f"client {name}: {last_lines(log)}")
        return _state(log) != CONNECTING


def _state(log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    if "Received" in text:
        return "taking its turns"
    return CONNECTING if "SuperNode ID" not in text else "connected, waiting for a turn"
