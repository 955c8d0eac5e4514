"""Messages to some nodes and the replies that come in time. A node that still owes one is not asked again."""

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
    busy: set[int]  # not asked: still owe the reply to an earlier message
    silent: set[int]  # asked, and did not answer in time


class Exchange:
    """Sends and collects over a Flower grid."""

    def __init__(self, grid: Grid, *, timeout: float = 600.0, poll: float = 0.1) -> None:
        self.grid, self.timeout, self.poll = grid, timeout, poll
        self.late: Callable[[int], None] = lambda _node: None  # told of each reply that came too late
        self._owed: dict[str, int] = {}  # message -> node

    def nodes(self) -> list[int]:
        """Nodes that are connected now."""
        return sorted(self.grid.get_node_ids())

    def owes(self, node: int) -> bool:
        """Whether a node has not answered an earlier message yet; what comes too late is thrown away."""
        self._collect_late()
        return node in self._owed.values()

    def wait(self, waiting: int = 0) -> None:
        """Until it is worth looking again: a look costs about a millisecond for each reply that is due."""
        time.sleep(max(self.poll, 0.002 * waiting))

    def ask(self, kind: str, content: Mapping[int, RecordDict], timeout: float | None = None) -> Answers:
        """One message to each node of content, and the replies within the timeout."""
        self._collect_late()
        busy = {node for node in content if node in self._owed.values()}
        messages = [Message(content[node], node, kind) for node in content if node not in busy]
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
        self._owed |= waiting
        return Answers(replies, busy, set(content) - set(replies) - busy)

    def _collect_late(self) -> None:
        """Replies to earlier messages: thrown away, but their nodes are free again."""
        if self._owed:
            for reply in self.grid.pull_messages(list(self._owed)):
                node = self._owed.pop(reply.metadata.reply_to_message_id, None)
                if node is not None and not reply.has_error():
                    self.late(node)
