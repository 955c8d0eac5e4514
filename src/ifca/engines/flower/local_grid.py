"""A Flower grid inside one process: every message is answered at once by the client app. For tests."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity


class LocalGrid(Grid):
    """Nodes 1 to m, with partitions 0 to m - 1; no Ray, no network."""

    def __init__(self, app: ClientApp, m: int, config: dict[str, str | int | float] | None = None) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 0
        self.app, self.connected = app, set(range(1, m + 1))
        self._contexts = {node: self._context(node, m, config or {}) for node in self.connected}
        self._replies: dict[str, Message] = {}
        self.sent: list[Message] = []

    def get_node_ids(self) -> Iterable[int]:
        """Nodes that are connected."""
        return list(self.connected)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let the client app answer; what it raises becomes an error reply, as in Flower."""
        keys = []
        for message in messages:
            key = message.metadata.__dict__["_message_id"] = str(uuid4())
            self.sent.append(message)
            keys.append(key)
            try:
                reply = self.app(message, self._contexts[message.metadata.dst_node_id])
            except Exception as reason:  # noqa: BLE001
                reply = Message(Error(2, f"{type(reason).__name__}: {reason}"), reply_to=message)
            self._replies[key] = reply
        return keys

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Each reply once."""
        return [self._replies.pop(key) for key in message_ids if key in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push and pull: every reply is there at once."""
        del timeout
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: Run) -> None:
        """There is one run."""
        self._run = run

    @property
    def run(self) -> Run:
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

    @staticmethod
    def _context(node: int, m: int, config: dict[str, str | int | float]) -> Context:
        place = {"partition-id": node - 1, "num-partitions": m}
        return Context(1, node, place, RecordDict(), dict(config))  # type: ignore[arg-type]
