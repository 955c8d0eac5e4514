"""Messages to nodes, and the replies that come in time.

A node that owes a reply gets no new message, but not for ever: the process that had the message may have been
killed, and its node come back. After another timeout the reply is given up, and the node asked again; each
time that this happens in a row it is waited for twice as long, so messages do not pile up at slow nodes.
"""

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


class Owed(NamedTuple):
    """A reply that did not come in time: whose, and until when it keeps its node from being asked."""

    node: int
    until: float


class Exchange:
    """Sends messages over a Flower grid and receives the replies."""

    def __init__(self, grid: Grid, *, timeout: float = 600.0, poll: float = 0.1) -> None:
        self.grid, self.timeout, self.poll = grid, timeout, poll
        self.on_late: Callable[[int, Message], None] = lambda _node, _reply: None  # a reply after its timeout
        # what is waited for: kind of message, nodes that have not replied, seconds until they are given up
        self.on_wait: Callable[[str, set[int], float], None] = lambda _kind, _nodes, _left: None
        self.receiver = Receiver(grid)
        self._unanswered: dict[str, Owed] = {}  # by the id of the message
        self._given_up: dict[int, int] = {}  # replies of a node that were given up one after the other

    def nodes(self) -> list[int]:
        """Nodes that are connected now."""
        return sorted(self.grid.get_node_ids())

    def names(self) -> dict[int, str]:
        """Names under which nodes were registered with their keys; none where nobody registered them."""
        return {node.node_id: node.name for node in self.grid.get_nodes() if node.name}

    def busy_nodes(self) -> set[int]:
        """Nodes that still owe a reply, after those that came late were received."""
        self._receive_late()
        return {owed.node for owed in self._unanswered.values()}

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
                    self._given_up.pop(node, None)
            now = time.monotonic()
            if not waiting or now > deadline:
                break
            if now > told + TELL_EVERY:
                self.on_wait(message_type, set(waiting.values()), deadline - now)
                told = now
            time.sleep(max(self.poll, now - begun))  # no more than half of the time goes into pulling
        self._owe(waiting)
        return Answers(replies, busy, set(content) - set(replies) - busy)

    def tell(self, message_type: str, node: int, content: RecordDict) -> None:
        """Send a message whose reply nobody waits for."""
        self._owe(dict.fromkeys(self.grid.push_messages([Message(content, node, message_type)]), node))

    def _owe(self, waiting: Mapping[str, int]) -> None:
        now = time.monotonic()
        for key, node in waiting.items():
            patience = self.timeout * 2 ** self._given_up.get(node, 0)
            self._unanswered[key] = Owed(node, now + patience)

    def _receive_late(self) -> None:
        """Replies to earlier messages: their nodes are free again, and on_late is told of each."""
        if not self._unanswered:
            return
        for reply in self.receiver.pull({key: owed.node for key, owed in self._unanswered.items()}):
            owed = self._unanswered.pop(reply.metadata.reply_to_message_id, None)
            if owed is not None:
                self._given_up.pop(owed.node, None)
                self.on_late(owed.node, reply)
        now = time.monotonic()
        for key, owed in list(self._unanswered.items()):
            if owed.until < now:
                del self._unanswered[key]
                self._given_up[owed.node] = self._given_up.get(owed.node, 0) + 1
