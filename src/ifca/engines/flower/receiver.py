"""Replies out of Flower's SuperLink, each by itself: bounded before it is read, and nobody waits for one.

HttpGrid.pull_messages of Flower takes all replies at once. It waits minutes for a part that a client does not
send, ends with what one reply raises, and an array of a few bytes that names one chunk a million times takes
all memory. Here a reply whose parts are not all there stays due, and what is no reply becomes an error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from flwr.app import Error, Message, Metadata
from flwr.serverapp import Grid

from ifca.engines.flower.private_api import GRID, get

MALFORMED = 100  # our own code of an error; Flower's are smaller
LARGEST = 16 * 2**20  # bytes of a reply, as long as the size of the models is not known
SHARE = 0.5  # seconds that one reply gets at a time: one of ten thousand small parts holds nobody up


class TooLarge(Exception):
    """A reply that is larger than any honest one."""


class Receiver:
    """Takes replies over a grid. largest: bytes of the largest that is read."""

    def __init__(self, grid: Grid) -> None:
        self.grid, self.largest = grid, LARGEST
        self._incomplete: dict[str, _Parts] = {}  # by the message that they answer

    def pull(self, ids: Iterable[str]) -> list[Message]:
        """The replies to messages that are there, whole."""
        if type(self.grid).__name__ != "HttpGrid":  # another process's memory, which nobody else writes
            return list(self.grid.pull_messages(ids))
        wanted = set(ids)
        if asked := wanted - self._incomplete.keys():
            client = get(GRID, "HttpGrid")._runtime_client.fget(self.grid)
            response = client.PullMessages(get(GRID, "PullAppMessagesRequest")(message_ids=asked))
            for told, tree in zip(response.messages_list, response.message_object_trees, strict=True):
                self._incomplete[told.metadata.reply_to_message_id] = _Parts(self.grid, told, tree)
        found = [(key, self._incomplete[key].whole(self.largest)) for key in wanted & self._incomplete.keys()]
        for key, message in found:
            if message is not None:
                del self._incomplete[key]
        return [message for _, message in found if message is not None]


class _Parts:
    """The parts of one reply, as far as they have come."""

    def __init__(self, grid: Any, told: Any, tree: Any) -> None:
        self.grid, self.id, self.answers = grid, told.metadata.message_id, told.metadata.reply_to_message_id
        self.tree = tree
        self.missing: list[str] | None = None  # parts that have not come; None: nobody has looked
        self.contents: dict[str, bytes] = {}
        self.size = 0

    def whole(self, largest: int) -> Message | None:
        """The message; None: a part is missing yet. What is no message becomes an error."""
        try:
            if not self._pull(largest):
                return None
            _check_inflated(self.contents, largest)
            message: Message = get(GRID, "inflate_object_from_contents")(self.id, self.contents)
            message.metadata.__dict__["_message_id"] = self.id
            if message.metadata.reply_to_message_id != self.answers:
                raise ValueError("it answers another message than it says")
        except (TooLarge, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as reason:
            message = self._error(f"{type(reason).__name__}: {reason}")
        self._call("ConfirmMessageReceived", message_object_id=self.id)
        return message

    def _pull(self, largest: int) -> bool:
        """Take the parts that are there, as long as it may take; whether that are all."""
        if self.missing is None:
            self.missing = [one.object_id for one in get(GRID, "iterate_object_tree")(self.tree)]
        end = time.monotonic() + SHARE
        while self.missing:
            if time.monotonic() > end:
                return False
            found = self._call("PullObject", object_id=self.missing[-1])
            if not found.object_found:
                raise LookupError("a part of it was never sent")
            if not found.object_available:
                return False
            self.contents[self.missing.pop()] = found.object_content
            self.size += len(found.object_content)
            if self.size > largest:
                raise TooLarge(f"its parts have more than {largest} bytes")
        return True

    def _call(self, method: str, **arguments: Any) -> Any:
        client = get(GRID, "HttpGrid")._runtime_client.fget(self.grid)
        request = get(GRID, f"{method}Request")
        return getattr(client, method)(request(node=self.grid.node, run_id=self.grid.run.run_id, **arguments))

    def _error(self, reason: str) -> Message:
        metadata = Metadata(
            run_id=self.grid.run.run_id,
            message_id="",
            src_node_id=0,
            dst_node_id=0,
            reply_to_message_id=self.answers,
            group_id="",
            created_at=0,
            ttl=0,
            message_type="train",
        )
        made: Message = get(GRID, "make_message")(metadata=metadata, error=Error(MALFORMED, reason))
        return made


def _check_inflated(contents: dict[str, bytes], largest: int) -> None:
    """Arrays name the chunks that they are made of, and may name one many times."""
    head, total = get(GRID, "get_object_head_values_from_object_content"), 0
    for content in contents.values():
        kind, children, length = head(content)
        if kind == "Array":
            chunks = json.loads(content[len(content) - length :])["arraychunk_ids"]
            total += sum(len(contents[children[at]]) for at in chunks)
    if total > largest:
        raise TooLarge(f"its arrays have {total} bytes")
