"""What is tried from outside: strangers, users of the server's machine, clients that do not come, faults.

Parts of benchmarks/federation_session.py.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.federation_lab import (
    Lab,
    Row,
    command_lines,
    giant_post,
    half_open,
    job,
    line_with,
    memory,
    still_open,
    superlink_pid,
    wait_for,
)

from ifca.engines.flower.private_api import SUPERLINK, FlowerChanged, get
from ifca.federation.control import Control, check_gate
from ifca.federation.processes import ProcessFailed, running, wait_healthy
from ifca.federation.superlink import SuperLinkAddress

NOBODY = 65534  # the number of a user who owns nothing


def faults_while_gathering(here: Path) -> list[Row]:
    """A client is missing: the command ends by its deadline, and all three ways go on."""
    lab, rows = Lab(here, 3, job(2, "gather_timeout = 5")), list[Row]()
    ways: dict[str, Callable[[], subprocess.Popen[str]]] = {
        "the first command": lambda: lab.server("job.toml", "--out", "run"),
        "the same command": lambda: lab.server("job.toml", "--out", "run"),
        "--resume": lambda: lab.server("--resume", "run"),
        "ifca resume": lambda: lab.start("resume", "--quiet", "run"),
    }
    try:
        lab.liar("c2", "name")
        lab.client("c0")
        for way, start in ways.items():
            if way == "ifca resume":
                lab.client("c1")
                kept = here / "run" / ".flower" / "config.toml"
                kept.write_text(kept.read_text().replace("gather_timeout = 5.0", "gather_timeout = 120.0"))
            server = start()
            code, said = server.wait(400), lab.said(server)
            good = code == 0 if way == "ifca resume" else "given up (federation.gather_timeout)" in said
            outcome = line_with(said, "given up (") if code else "trained to its end"
            rows.append(Row("1", f"{way}, after a fault while clients gathered", outcome, good))
        return rows
    finally:
        lab.end()


def outsiders(here: Path) -> list[Row]:
    """Strangers without a key and users of the same machine, while a server with 1,024 descriptors waits."""
    lab = Lab(here, 2, job(2, "gather_timeout = 300"))
    server = lab.server("job.toml", "--out", "run", before=["prlimit", "--nofile=1024:1024"])
    try:
        wait_for(lambda: "open at" in lab.said(server), server)
        client = lab.client("c0")
        wait_for(lambda: "connected" in lab.said(client), server)
        rows = strangers(lab, server) + on_the_host(lab)
        twin = lab.client("c0", "--key", "tls/clients/c0", "--patience", "0")
        twin.wait(120)
        lab.client("c1")
        assert server.wait(400) == 0, lab.said(server)
        said = lab.said(twin)
        good = "its key is in use" in said
        rows.append(Row("6", "a second process with a key in use", line_with(said, "in use"), good))
        said = lab.said(server)
        good = "turned away: " in said and " joined: " in said
        told = f"{line_with(said, ' joined: ')}; {line_with(said, 'turned away: ')}"
        return [*rows, Row("6", "joins and strangers on the server's terminal", told, good)]
    finally:
        lab.end()


def strangers(lab: Lab, server: subprocess.Popen[str]) -> list[Row]:
    """Connections that say little, bodies that are large."""
    begun, before = time.monotonic(), memory(superlink_pid(lab))
    with half_open(lab, 400) as half, half_open(lab, 590, shake_hands=False) as silent:
        count = len(half) + len(silent)
        wait_for(lambda: still_open([*half, *silent]) == 0, server, 120)
        closed = time.monotonic() - begun
    between = memory(superlink_pid(lab))
    status, taken = giant_post(lab, "/v1/fleet/pull-messages", 1000)
    more = max(0.0, memory(superlink_pid(lab)) - between)
    flood = f"all closed {closed:.0f} s after the first came; {between - before:.0f} MB of memory"
    post = f"status {status or 'none'}, {taken} MB taken off the wire, {more:.0f} MB more memory"
    return [
        Row("3", f"{count} half-open connections, 1,024 descriptors", flood, closed < 100),
        Row("3", "a POST of 1,000 MB without a key", post, taken < 50 and more < 100),
    ]


def on_the_host(lab: Lab) -> list[Row]:
    """What another user of the machine can do."""
    address = SuperLinkAddress("127.0.0.1", lab.port, lab.here / "tls")
    try:
        Control(address, b"guessed").register()
        refused = "let in"
    except ProcessFailed as reason:
        refused = "403" if "403" in str(reason) else str(reason)[:60]
    work = lab.here / "run" / ".flower"
    modes = f"{work.stat().st_mode & 0o777:o}, {(work / 'state.db').stat().st_mode & 0o777:o}"
    secrets = [(work / name).read_text() for name in ("admin.secret", "tasks.secret")]
    shown = "--token" in command_lines() or any(secret in command_lines() for secret in secrets)
    tasks = without_a_token(lab)
    calls = f"{len(tasks)} calls of Flower's Runtime API from this machine, without a token"
    let_in = [path for path, status in tasks.items() if status < 400]
    rows = [
        Row("5", "administration from this machine, without the secret", refused, refused == "403"),
        Row("5", calls, f"let in: {', '.join(let_in) or 'none'}", len(tasks) > 5 and not let_in),
        Row("5", "modes of Flower's folder and database", modes, modes == "700, 600"),
        Row("5", "tokens and secrets in the list of processes", "some" if shown else "none", not shown),
    ]
    if os.getuid() == 0:
        command = ["cat", str(work / "admin.secret")]
        tried = subprocess.run(command, user=NOBODY, capture_output=True, check=False)
        rows.append(Row("5", "another user reads the secret", "permission denied", tried.returncode != 0))
    return rows


def without_a_token(lab: Lab) -> dict[str, int]:
    """What Flower answers to each call of its Runtime API that has no token: the status, by path."""
    context, found = ssl.create_default_context(cafile=str(lab.here / "tls" / "ca.crt")), dict[str, int]()
    for method, path in get(SUPERLINK, "PROTOBUF_REQUEST_TYPES"):
        if path.startswith("/v1/runtime/"):
            connection = http.client.HTTPSConnection("127.0.0.1", lab.port, timeout=20, context=context)
            connection.request(method, path, b"", {"Content-Type": "application/protobuf"})
            found[path] = connection.getresponse().status
            connection.close()
    return found


def full_disk(here: Path) -> list[Row]:
    """The disk of the run becomes full in round 2; when it is free again, the run goes on."""
    lab = Lab(here, 2, job(2))
    (here / "run").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(here / "run")]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        return []  # only root can
    server = lab.server("job.toml", "--out", "run")
    try:
        for name in lab.names:
            lab.client(name)
        wait_for(lambda: lab.rounds("run") >= 1, server)
        with contextlib.suppress(OSError), (here / "run" / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        code = server.wait(300)
        said = line_with(lab.said(server), "error: ")
        (here / "run" / "filler").unlink()
        again = lab.start("resume", "--quiet", "run")
        good = code != 0 and "o space" in said and again.wait(400) == 0
        return [Row("6", "the disk becomes full; it is made free, and the run resumed", said, good)]
    finally:
        lab.end()
        subprocess.run(["umount", str(here / "run")], check=False)


def no_gate(here: Path) -> list[Row]:
    """Flower's SuperLink as it is, without the gate."""
    lab = Lab(here)
    address = SuperLinkAddress("127.0.0.1", lab.port, here / "tls")
    command = [str(Path(sys.executable).with_name("flower-superlink")), "--host", "127.0.0.1"]
    command += ["--port", str(lab.port), "--enable-supernode-auth"]
    for name, file in (("ca-certfile", "ca.crt"), ("certfile", "server.crt"), ("keyfile", "server.key")):
        command += [f"--ssl-{name}", str(here / "tls" / file)]
    with running(command, here / "log", here / "home") as process:
        wait_healthy(process, f"https://{address.local}/health", here / "tls" / "ca.crt", here / "log", 90)
        try:
            check_gate(address, b"secret")
            outcome, good = "started", False
        except FlowerChanged as reason:
            outcome, good = str(reason), True
    return [Row("7", "Flower does not call the gate", outcome, good)]
