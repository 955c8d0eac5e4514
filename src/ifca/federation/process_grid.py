"""A grid of Flower on one machine: a few processes play all nodes, and messages go through pipes.

Flower's own simulation hands every message to a Ray actor by itself and looks through all messages for each
node, which takes longer than small clients take to train (docs/federation.md has the numbers). The apps, the
messages and their contents are the same here; a node always lives in the same process, which keeps its state.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from uuid import uuid4

from flwr.app import Error, Message
from flwr.clientapp import ClientApp

from ifca.engines.flower.local_grid import NumberedNodes
from ifca.federation.processes import QUIET

CRASHED = 8  # Flower's code of a client whose process died
ForkingPickler.register(memoryview, lambda view: (bytes, (view.tobytes(),)))  # parts that were counted


class ProcessGrid(NumberedNodes):
    """Nodes 1 to m, with partitions 0 to m - 1, dealt to processes of this machine."""

    def __init__(self, make_app: Callable[[], ClientApp], m: int, processes: int, threads: int = 1) -> None:
        """make_app: a function that can be pickled; threads: of torch, in each process."""
        super().__init__(m)
        self._start = make_app, m, threads
        self._replies: dict[str, Message] = {}
        self._due: dict[str, Message] = {}  # messages that were sent and are not answered
        self._pipes = list[Connection]()
        self._parents = list[subprocess.Popen[bytes]]()
        self._begin(range(min(m, processes)))

    def _begin(self, numbers: Iterable[int]) -> None:
        """Start the processes of some numbers; what one is told first is how to make the app."""
        pairs = {number: socket.socketpair() for number in numbers}
        theirs = [pair[1] for pair in pairs.values()]
        path = os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
        for some in [theirs] if sys.platform == "linux" else [[one] for one in theirs]:
            handles = [str(one.fileno()) for one in some]
            command = [sys.executable, "-m", "ifca.federation.simulated_nodes", *handles]
            environment = {**os.environ, **QUIET, "PYTHONPATH": path}
            self._parents.append(
                subprocess.Popen(command, pass_fds=[one.fileno() for one in some], env=environment)
            )
        for number, (mine, their) in pairs.items():
            their.close()
            pipe = Connection(mine.detach())
            self._pipes[number : number + 1] = [pipe]
            pipe.send(self._start)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send each process the messages of its nodes, together: what they share is sent once."""
        shares: dict[int, list[Message]] = {}
        keys = []
        for message in messages:
            key = message.metadata.__dict__["_message_id"] = str(uuid4())
            keys.append(key)
            self._due[key] = message
            shares.setdefault(self._process_of(message), []).append(message)
        for number, some in shares.items():
            with contextlib.suppress(OSError):  # it has died, which the next pull notices
                self._pipes[number].send(some)
        return keys

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that are there, each once."""
        for number in range(len(self._pipes)):
            self._take(number)
        return [self._replies.pop(key) for key in message_ids if key in self._replies]

    def _take(self, number: int) -> None:
        """The replies that a process has sent."""
        try:
            while self._pipes[number].poll():
                reply: Message = self._pipes[number].recv()
                key = reply.metadata.reply_to_message_id
                self._replies[key] = reply
                del self._due[key]
        except (EOFError, OSError):
            self._bury(number)

    def _bury(self, number: int) -> None:
        """A process has died: its nodes answer with an error, and live on in a new one."""
        for key, message in list(self._due.items()):
            if self._process_of(message) == number:
                error = Error(CRASHED, "the process of the simulated client died")
                self._replies[key] = Message(error, reply_to=self._due.pop(key))
        self._pipes[number].close()
        self._begin([number])

    def _process_of(self, message: Message) -> int:
        return (message.metadata.dst_node_id - 1) % len(self._pipes)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for parent in self._parents:
            with contextlib.suppress(subprocess.TimeoutExpired):
                parent.wait(5)
            parent.kill()
            parent.wait()


@contextlib.contextmanager
def process_grid(
    make_app: Callable[[], ClientApp], m: int, cpus: float = 1.0, *, most: int | None = None
) -> Iterator[ProcessGrid]:
    """A grid whose processes end with the block. cpus: cores that one client takes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    grid = ProcessGrid(make_app, m, most or max(1, int(cores / cpus)), max(1, int(cpus)))
    try:
        yield grid
    finally:
        grid.close()
