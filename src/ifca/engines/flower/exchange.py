"""Messages to nodes, and the replies that come in time. A node that owes a reply gets no new message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from ifca.engines.flower.receiver import Receiver

AT_ONCE = 64  # messages in one request
TELL_EVERY = 30.0  # seconds between two words about what is waited for


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
        # what is waited for: kind of message, nodes that have not replied, seconds until they are given up
        self.on_wait: Callable[[str, set[int], float], None] = lambda _kind, _nodes, _left: None
        self.receiver = Receiver(grid)
        self._unanswered: dict[str, int] = {}  # id of an earlier message -> node

    def nodes(self) -> list[int]:
        """Nodes that are connected now."""
        return sorted(self.grid.get_node_ids())

    def names(self) -> dict[int, str]:
        """Names under which nodes were registered with their keys; none where nobody registered them."""
        return {node.node_id: node.name for node in self.grid.get_nodes() if node.name}

    def busy_nodes(self) -> set[int]:
        """Nodes that still owe a reply, after those that came late were received."""
        self._receive_late()
        return set(self._unanswered.values())

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
        replies, told = dict[int, Message](), time.monotonic()
        while waiting:
            begun = time.monotonic()
            for reply in self.receiver.pull(waiting):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    replies[node] = reply
            now = time.monotonic()
            if not waiting or now > deadline:
                break
            if now > told + TELL_EVERY:
                self.on_wait(message_type, set(waiting.values()), deadline - now)
                told = now
            time.sleep(max(self.poll, now - begun))  # no more than half of the time goes into pulling
        self._unanswered |= waiting
        return Answers(replies, busy, set(content) - set(replies) - busy)

    def tell(self, message_type: str, node: int, content: RecordDict) -> None:
        """Send a message whose reply nobody waits for."""
        self._unanswered |= dict.fromkeys(
            self.grid.push_messages([Message(content, node, message_type)]), node
        )

    def _receive_late(self) -> None:
        """Replies to earlier messages: their nodes are free again, and on_late is told of each."""
        if self._unanswered:
            for reply in self.receiver.pull(self._unanswered):
                node = self._unanswered.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    self.on_late(node, reply)
