"""'ifca federate client': a SuperNode with one client's data, until it is interrupted."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tomli_w

from ifca.core.errors import InvalidInput
from ifca.data import read_client
from ifca.data.problems import refuse
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import kind_of, name_of, read_table
from ifca.engines.flower.faults import printable
from ifca.federation.apps import client_file
from ifca.federation.clientapp import CANNOT_JOIN, REFUSED_BY
from ifca.federation.keys import CA, check_private
from ifca.federation.processes import ProcessFailed, free_port, last_lines, new_secret, running
from ifca.federation.server_check import knows_key, server_is_reachable, tls_context
from ifca.federation.task_executor import PRELOAD, TASK_SECRET, executor_command

Say = Callable[[str], None]
CONNECTING = "connecting to the server"
IN_USE = "its key is in use: by another process, or by one of this client's that ended within the last minute"
UNKNOWN = "the server does not know its key: is it in the server's folder of keys?"
NO_ANSWER = "the server does not answer; it is waited for (--wait)"
LET_IN = "SuperNode ID"
LOST, FOUND = "Connection attempt failed", "Connection successful"  # as Flower logs these
SAY_EVERY = 60.0  # seconds between two words about a server that is not there


def join(
    server: str,
    data: Path,
    key: Path | None,
    ca: Path | None,
    insecure: bool,
    patience: float,
    say: Say,
    *,
    name: str | None = None,
    wait: float = 86400.0,
) -> None:
    """Offer one client's data to a server; the data are read here and never sent.

    patience: seconds during which a client that is turned away tries again; wait: for a server that is not
    there, or does not answer any more. name: of the client; None: that of its key, or of its file where there
    is no key.
    """
    file = client_file(data).resolve()
    if kind_of(file) in TABLES:  # what its columns are, the server's config says
        read_table(file, refuse)
    else:
        read_client(file)  # refuse a bad file now, not in the first round
    root = None if insecure else ca or (key.parent.parent / CA if key else None)
    command = [str(Path(sys.executable).with_name("flower-supernode")), "--superlink", server]
    command += ["--max-wait-time", str(wait)]
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
    name = name or (name_of(file) if key is None else key.name)
    _wait_for(server, root, name, wait, say)
    deadline, why = time.monotonic() + patience, ""
    while True:  # the server may not know this key yet, or be another one than the last time
        if key is not None and root is not None and not knows_key(server, root, key):
            let_in, why, said = False, UNKNOWN, why
            if said != why:
                say(f"client {name}: {why}; tried again for {patience:g} s")
        else:
            let_in, why = _run_once(command, file, name, say)
        if let_in:
            deadline = time.monotonic() + patience
        if time.monotonic() >= deadline:
            raise ProcessFailed(f"client {name}: ended by the server, or turned away: {why}")
        time.sleep(1)
        _wait_for(server, root, name, patience, say)


def _wait_for(server: str, root: Path | None, name: str, wait: float, say: Say) -> None:
    """Until somebody is at the server's address, or the wait is over."""
    begun, said = time.monotonic(), -SAY_EVERY
    while not server_is_reachable(server, root):
        waited = time.monotonic() - begun
        if waited > wait:
            raise ProcessFailed(f"client {name}: nobody was at {server} for {wait:g} s")
        if waited >= said + SAY_EVERY:
            say(f"client {name}: nobody is at {server} yet, waiting; given up in {wait - waited:.0f} s")
            said = waited
        time.sleep(1)


def _run_once(command: list[str], file: Path, name: str, say: Say) -> tuple[bool, str]:
    """Run a SuperNode until it ends; whether it was ever let in, and why it ended."""
    with tempfile.TemporaryDirectory(prefix="ifca-client-") as folder:  # of this user alone
        here, said, port = Path(folder), "", free_port()
        log, secret, config = here / "supernode.log", here / TASK_SECRET, here / "node.toml"
        new_secret(secret)
        config.write_text(tomli_w.dumps({"data": str(file), "name": name}))
        tasks = ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
        node = [*command, "--port", str(port), "--node-config", str(config), *tasks]
        loaded = {} if kind_of(file) in TABLES else {PRELOAD: str(file)}
        executor = executor_command(f"127.0.0.1:{port}", None, secret)
        with (
            running(node, log, here / "home") as supernode,
            running(executor, log, here / "home", more=loaded) as serving,
        ):
            read = -1  # bytes of the log, which grows for days
            while supernode.poll() is None and serving.poll() is None:
                if log.stat().st_size != read:
                    read, before, said = log.stat().st_size, said, _state(log)
                    if said != before:
                        say(f"client {name}: {said}")
                time.sleep(0.5)
        why = _reason(log)
        say(f"client {name}: {why}")
        return LET_IN in log.read_text(errors="replace"), why


def _state(log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    if LET_IN in text and text.rfind(LOST) > max(map(text.rfind, (LET_IN, FOUND, "Receiving: "))):
        return NO_ANSWER
    turn = max(text.rfind("Receiving: train"), text.rfind("Receiving: evaluate"))
    why = max((REFUSED_BY, CANNOT_JOIN), key=text.rfind)
    if text.rfind(why) > turn:
        return printable(why + text.rpartition(why)[2].partition("\n")[0])
    if turn >= 0:
        return "taking its turns"
    return CONNECTING if LET_IN not in text else "connected, waiting for a turn"


def _reason(log: Path) -> str:
    """Why a SuperNode ended, in one sentence."""
    text = log.read_text(errors="replace") if log.exists() else ""
    if "Failed to activate SuperNode" in text:
        return IN_USE
    return last_lines(log)
