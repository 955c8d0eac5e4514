"""Flower grids of this machine, whose nodes are numbered; the plainest answers every message at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from ifca.engines.flower.private_api import RECORDS, get

RAISED = 2  # Flower's code of a client whose app raised
Values = dict[str, str | int | float]


class NumberedNodes(Grid):
    """Nodes 1 to m that are connected; what a grid does beside carrying messages."""

    def __init__(self, m: int) -> None:
        begin_task()
        self.connected = set(range(1, m + 1))

    def get_node_ids(self) -> Iterable[int]:
        """Nodes that are connected."""
        return list(self.connected)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push, and what is there at once; Exchange waits for the others."""
        del timeout
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: Any) -> None:
        """There is one run."""
        self._run = run

    @property
    def run(self) -> Any:
        """That run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """As the constructor of Message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)


class LocalGrid(NumberedNodes):
    """Nodes 1 to m, with partitions 0 to m - 1, inside this process: no Ray, no network. For tests."""

    def __init__(self, app: ClientApp, m: int, config: Values | None = None) -> None:
        super().__init__(m)
        self.app = app
        self._contexts = {node: node_context(node, m, config or {}) for node in self.connected}
        self._replies: dict[str, Message] = {}
        self.sent: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let the client app answer."""
        keys = []
        for message in messages:
            key = message.metadata.__dict__["_message_id"] = str(uuid4())
            self.sent.append(message)
            keys.append(key)
            self._replies[key] = answer(self.app, message, self._contexts[message.metadata.dst_node_id])
        return keys

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Each reply once."""
        return [self._replies.pop(key) for key in message_ids if key in self._replies]


def begin_task() -> None:
    """Let this process be a task of Flower: without one, no message can be made in it."""
    task = get(RECORDS, "TaskIdentity")
    task.run_id, task.task_id, task.node_id = 1, 1, 0


def node_context(node: int, m: int, config: Values) -> Context:
    """The context of one of m nodes, as Flower's simulation makes it."""
    place = {"partition-id": node - 1, "num-partitions": m}
    return Context(1, node, place, RecordDict(), dict(config))  # type: ignore[arg-type]


def answer(app: ClientApp, message: Message, context: Context) -> Message:
    """What an app replies; what it raises becomes an error reply, as in Flower."""
    try:
        return app(message, context)
    except Exception as reason:  # noqa: BLE001
        return Message(Error(RAISED, f"{type(reason).__name__}: {reason}"), reply_to=message)
