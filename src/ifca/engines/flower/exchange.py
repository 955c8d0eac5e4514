"""Messages to nodes, and the replies that come in time. A node that owes a reply gets no new message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

AT_ONCE = 64  # messages in one request


class Answers(NamedTuple):
    """What came back, by node."""

    replies: dict[int, Message]  # content or error
    busy: set[int]  # got no message: they still owe the reply to an earlier one
    silent: set[int]  # got a message, and did not reply in time


class Exchange:
    """Sends messages over a Flower grid and receives the replies."""

    def __init__(self, grid: Grid, *, timeout: float = 600.0, poll: float = 0.1) -> None:
        self.grid, self.timeout, self.poll = grid, timeout, poll
        self.on_late: Callable[[int, Message], None] = lambda _node, _reply: None  # a reply after its timeout
        self._unanswered: dict[str, int] = {}  # id of an earlier message -> node

    def nodes(self) -> list[int]:
        """Nodes that are connected now."""
        return sorted(self.grid.get_node_ids())

    def busy_nodes(self) -> set[int]:
        """Nodes that still owe a reply, after those that came late were received."""
        self._receive_late()
        return set(self._unanswered.values())

    def wait(self, waiting: int = 0) -> None:
        """Until the next pull is worth it: one costs about a millisecond for each reply that is due."""
        time.sleep(max(self.poll, 0.002 * waiting))

    def send_and_receive(
        self, message_type: str, content: Mapping[int, RecordDict], timeout: float | None = None
    ) -> Answers:
        """One message to each node of content, and the replies within the timeout."""
        busy = self.busy_nodes() & content.keys()
        messages = [Message(content[node], node, message_type) for node in content if node not in busy]
        waiting: dict[str, int] = {}
        for first in range(0, len(messages), AT_ONCE):
            some = messages[first : first + AT_ONCE]
            sent = zip(self.grid.push_messages(some), some, strict=False)
            waiting |= {key: message.metadata.dst_node_id for key, message in sent if key}
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        replies: dict[int, Message] = {}
        while waiting:
            for reply in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    replies[node] = reply
            if not waiting or time.monotonic() > deadline:
                break
            self.wait(len(waiting))
        self._unanswered |= waiting
        return Answers(replies, busy, set(content) - set(replies) - busy)

    def _receive_late(self) -> None:
        """Replies to earlier messages: their nodes are free again, and on_late is told of each."""
        if self._unanswered:
            for reply in self.grid.pull_messages(list(self._unanswered)):
                node = self._unanswered.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    self.on_late(node, reply)
