"""A process of process_grid.py: it plays nodes, one message at a time, until its pipe is closed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import Queue
from typing import cast

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from ifca.engines.flower.local_grid import answer, begin_task, node_context
from ifca.federation.task_executor import import_all


def play(pipe: Connection) -> None:
    """Answer the messages of a pipe."""
    make_app, m, threads = pipe.recv()
    torch.set_num_threads(threads)
    begin_task()
    app, todo, contexts = made(make_app), Queue[Message](), dict[int, Context]()
    threading.Thread(target=_receive, args=(pipe, todo), daemon=True).start()
    while True:
        message = todo.get()
        node = message.metadata.dst_node_id
        pipe.send(answer(app, message, contexts.setdefault(node, node_context(node, m, {}))))


def made(make_app: Callable[[], ClientApp]) -> ClientApp:
    """The app; one that cannot be made says why to every message."""
    try:
        return make_app()
    except Exception as reason:  # noqa: BLE001
        failure = reason

    def broken(_message: Message, _context: Context) -> Message:
        raise failure

    return cast(ClientApp, broken)


def _receive(pipe: Connection, todo: Queue[Message]) -> None:
    """Take messages while others are answered; who sends them never waits for an answer."""
    try:
        while True:
            for message in pipe.recv():
                todo.put(message)
    except (EOFError, OSError):
        os._exit(0)


def main() -> None:
    """Play at each of the pipes, in a copy of this process; the last one here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the process that simulates
    import_all()
    handles = [int(word) for word in sys.argv[1:]]
    for handle in handles[:-1]:
        if os.fork() == 0:
            _alone(handle, handles)
    _alone(handles[-1], handles)


def _alone(handle: int, handles: list[int]) -> None:
    """Play at one pipe; the others are for other processes."""
    for other in handles:
        if other != handle:
            os.close(other)
    try:
        play(Connection(handle))
    except (EOFError, OSError):  # who simulates has gone
        pass
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
