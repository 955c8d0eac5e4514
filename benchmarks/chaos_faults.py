"""The faults of a soak, and the federation that bears them: what ended is started again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.chaos_memory import Memory
from benchmarks.federation_lab import Lab, superlink_pid

from ifca.federation.processes import descendants


@dataclass
class Soaked:
    """A federation that is disturbed."""

    lab: Lab
    memory: Memory
    servers: int = 0  # how many were started
    server: subprocess.Popen[str] | None = None
    clients: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def start(self) -> None:
        """The server and its clients."""
        self.server, self.servers = self.lab.server("job.toml", "--out", "run"), 1
        self.mend()

    def mend(self) -> None:
        """Start again what has ended before its time."""
        assert self.server is not None
        if self.server.poll() is not None and not self.ended():
            self.server, self.servers = self.lab.start("resume", "--quiet", "run"), self.servers + 1
        for name in self.lab.names:
            if name not in self.clients or self.clients[name].poll() is not None:
                self.clients[name] = self.lab.client(
                    name, "--key", f"tls/clients/{name}", "--patience", "600"
                )

    def ended(self) -> bool:
        """Whether the run has trained to its end."""
        return self.server is not None and self.server.poll() == 0

    def rounds(self) -> int:
        """How many are done."""
        return self.lab.rounds("run")

    def tree(self, process: subprocess.Popen[str]) -> list[int]:
        """A process and all that it started."""
        return [process.pid, *descendants(process.pid)]


class Fault(NamedTuple):
    """What happens, and whether it ends the server or what it needs."""

    happens: Callable[[Soaked, random.Random], None]
    ends_server: bool = False


def send(pids: list[int], what: signal.Signals) -> None:
    """A signal to processes, whichever are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, what)


def stopped(pids: list[int], rng: random.Random) -> None:
    """Processes stand still for some seconds."""
    send(pids, signal.SIGSTOP)
    time.sleep(rng.uniform(1, 8))
    send(pids, signal.SIGCONT)


def kill_client(soaked: Soaked, rng: random.Random) -> None:
    """A client and all that it started, as when its machine loses power."""
    send(soaked.tree(soaked.clients[rng.choice(soaked.lab.names)]), signal.SIGKILL)
    time.sleep(rng.uniform(0, 3))


def lose_reply(soaked: Soaked, rng: random.Random) -> None:
    """The processes of a client that work on messages: their replies never come."""
    pids = soaked.tree(soaked.clients[rng.choice(soaked.lab.names)])
    send([pid for pid in pids[1:] if "task_executor" in command(pid)], signal.SIGKILL)


def stop_client(soaked: Soaked, rng: random.Random) -> None:
    """A client stands still, and goes on where it was."""
    stopped(soaked.tree(soaked.clients[rng.choice(soaked.lab.names)]), rng)


def kill_server(soaked: Soaked, _rng: random.Random) -> None:
    """The server and all that it started."""
    assert soaked.server is not None
    send(soaked.tree(soaked.server), signal.SIGKILL)
    soaked.server.wait()


def kill_server_alone(soaked: Soaked, _rng: random.Random) -> None:
    """The server's first process only."""
    assert soaked.server is not None
    soaked.server.kill()
    soaked.server.wait()


def stop_server(soaked: Soaked, rng: random.Random) -> None:
    """The server stands still."""
    assert soaked.server is not None
    stopped(soaked.tree(soaked.server), rng)


def kill_superlink(soaked: Soaked, _rng: random.Random) -> None:
    """The SuperLink alone; the server then ends by itself and says why."""
    assert soaked.server is not None
    with contextlib.suppress(OSError, ValueError):
        send([superlink_pid(soaked.lab)], signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        soaked.server.wait(60)


def stop_superlink(soaked: Soaked, rng: random.Random) -> None:
    """The SuperLink stands still."""
    with contextlib.suppress(OSError, ValueError):
        stopped([superlink_pid(soaked.lab)], rng)


def full_disk(soaked: Soaked, rng: random.Random) -> None:
    """The disk of the run is full for some seconds."""
    filler = soaked.lab.here / "run" / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as out:
        while True:
            out.write(bytes(4096))
    time.sleep(rng.uniform(2, 10))
    filler.unlink()


def slow_disk(soaked: Soaked, rng: random.Random) -> None:
    """Every fsync takes half a second, for some seconds (benchmarks/hurried)."""
    slow = soaked.lab.here / "slow"
    slow.touch()
    time.sleep(rng.uniform(2, 10))
    slow.unlink()


def command(pid: int) -> str:
    """The command line of a process; empty: it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


FAULTS = {
    "client killed": Fault(kill_client),
    "reply lost": Fault(lose_reply),
    "client stopped": Fault(stop_client),
    "server stopped": Fault(stop_server),
    "SuperLink stopped": Fault(stop_superlink),
    "slow disk": Fault(slow_disk),
    "server killed": Fault(kill_server, ends_server=True),
    "server's first process killed": Fault(kill_server_alone, ends_server=True),
    "SuperLink killed": Fault(kill_superlink, ends_server=True),
    "full disk": Fault(full_disk, ends_server=True),
}
