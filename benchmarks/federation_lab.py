"""A federation of real processes on this machine, and those who attack it: for tests and a longer session.

A client that lies runs the same command as an honest one, with its own key; LIE in its environment names the
lie, and a module that Python loads at its start (sitecustomize) changes what its app says.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ifca.data import Client, write_client
from ifca.federation.keys import make_keys, write_client_key
from ifca.federation.processes import free_port

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
JOB = """
algorithm = "ifca-plain"
k = 2
rounds = 3
step_size = 0.1
evaluate_every = 0
device = "cpu"
[data]
name = "folder"
path = "all"
[model]
name = "mlp"
hidden = [8]
[federation]
clients = 2
min_clients = 1
round_timeout = 60.0
"""


class Row(NamedTuple):
    """One thing that was tried: of which promise, what came out, whether that is as promised."""

    point: str
    tried: str
    outcome: str
    kept: bool


def job(clients: int, *more: str) -> str:
    """The job for so many clients, with some lines of [federation]; 6 rounds."""
    text = JOB.replace("rounds = 3", "rounds = 6").replace("clients = 2\n", f"clients = {clients}\n", 1)
    return text + "".join(f"{line}\n" for line in more)


def line_with(text: str, words: str) -> str:
    """The first line of a text that has some words."""
    found = next((line.strip() for line in text.splitlines() if words in line), "nothing said")
    return found if len(found) <= 220 else f"{found[:220]} ..."


LIES = Path(__file__).with_name("lies")  # the folder of a sitecustomize


class Lab:
    """A folder with keys and data of some clients, and the processes that were started in it."""

    def __init__(self, here: Path, m: int = 2, job: str = JOB) -> None:
        self.here, self.port, self.names = here, free_port(), [f"c{i}" for i in range(m)]
        self.processes: list[subprocess.Popen[str]] = []
        rng = np.random.default_rng(0)
        rules = rng.normal(size=(2, 6, 3)) * 2
        for i, name in enumerate(self.names):
            x = rng.normal(size=(40, 6)).astype(np.float32)
            y = (x @ rules[i % 2]).argmax(1)
            for folder in (here / "all", here / name):
                folder.mkdir(exist_ok=True)
                client = Client(x[:30], y[:30], x[30:], y[30:], cluster=i % 2)
                write_client(folder / f"{name}.npz", client)
        (here / "job.toml").write_text(job)
        make_keys(here / "tls", self.names)
        write_client_key(here / "stranger")

    def start(self, *arguments: str, before: Sequence[str] = (), **more: str) -> subprocess.Popen[str]:
        """Start ifca, its output in a file named after its number; more: of its environment."""
        log = self.here / f"{len(self.processes)}.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [*before, sys.executable, "-m", "ifca", *arguments],
                cwd=self.here,
                env={**ENVIRONMENT, **more},
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.processes.append(process)
        return process

    def server(self, *arguments: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
        """A server with keys; before: a command that starts it."""
        given = ("--port", str(self.port), "--tls-dir", "tls", "--quiet")
        return self.start("federate", "server", *given, *arguments, before=before)

    def client(self, name: str, *arguments: str, data: str = "", **more: str) -> subprocess.Popen[str]:
        """A client with its key, or with other arguments."""
        given = arguments or ("--key", f"tls/clients/{name}")
        here = ("--server", f"127.0.0.1:{self.port}", "--data", data or name)
        return self.start("federate", "client", *here, *given, **more)

    def liar(self, name: str, lie: str, **more: str) -> subprocess.Popen[str]:
        """A client that lies."""
        path = os.pathsep.join([str(LIES), os.environ.get("PYTHONPATH", "")])
        return self.client(name, LIE=lie, PYTHONPATH=path, **more)

    def said(self, process: subprocess.Popen[str]) -> str:
        """What a process has printed."""
        return (self.here / f"{self.processes.index(process)}.log").read_text(errors="replace")

    def rounds(self, out: str) -> int:
        """Rounds that a run has done."""
        log = self.here / out / "rounds.jsonl"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def end(self) -> None:
        """End every process."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and any(process.poll() is None for process in self.processes):
            time.sleep(0.1)
        for process in self.processes:
            process.kill()
            process.wait()


def wait_for(reached: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 400) -> None:
    """Until something is so, as long as a process runs."""
    deadline = time.monotonic() + seconds
    while not reached() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert reached()


@contextlib.contextmanager
def half_open(lab: Lab, count: int, *, shake_hands: bool = True) -> Iterator[list[socket.socket]]:
    """Connections that send half a head, or not even greet."""
    context, found = ssl.create_default_context(cafile=str(lab.here / "tls" / "ca.crt")), []
    try:
        for _ in range(count):
            plain = socket.create_connection(("127.0.0.1", lab.port), timeout=20)
            if shake_hands:
                plain = context.wrap_socket(plain, server_hostname="127.0.0.1")
                plain.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\n")
            found.append(plain)
        yield found
    finally:
        for one in found:
            one.close()


def still_open(connections: list[socket.socket]) -> int:
    """How many of these connections the other side has not closed."""
    count = 0
    for one in connections:
        one.settimeout(0.001)
        try:
            count += one.recv(1) != b""
        except (TimeoutError, ssl.SSLWantReadError):
            count += 1
        except OSError:
            pass
    return count


def giant_post(lab: Lab, path: str, megabytes: int) -> tuple[int, int]:
    """Send a large body without a key; the status that comes back (0: none), megabytes that were taken."""
    context = ssl.create_default_context(cafile=str(lab.here / "tls" / "ca.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", lab.port, timeout=30, context=context)
    connection.putrequest("POST", path)
    connection.putheader("Content-Type", "application/protobuf")
    connection.putheader("Content-Length", str(megabytes * 2**20))
    connection.endheaders()
    taken = 0
    with contextlib.suppress(OSError):
        for _ in range(megabytes):
            connection.send(bytes(2**20))
            taken += 1
    try:
        return connection.getresponse().status, taken
    except (OSError, http.client.HTTPException):
        return 0, taken
    finally:
        connection.close()


def superlink_pid(lab: Lab, out: str = "run") -> int:
    """The process of the SuperLink."""
    log = (lab.here / out / ".flower" / "superlink.log").read_text()
    return int(log.rpartition("Started server process [")[2].partition("]")[0])


def memory(pid: int) -> float:
    """Megabytes that a process has, and had at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return max(int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))) / 1024


def command_lines() -> str:
    """What every user of this machine can read of all processes."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True)
    return listed.stdout
