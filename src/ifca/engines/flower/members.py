"""Clients as they describe themselves: asked who they are, and what no honest one says of itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict

from ifca.engines.flower.exchange import Exchange
from ifca.engines.flower.faults import FaultLog, Unusable, content_of
from ifca.engines.flower.moments import Moments, are_possible
from ifca.engines.flower.records import REPLY, TURN

LONGEST_NAME, MOST = 200, 2**31  # letters of a client's name; samples, and numbers of one sample
QUERY_TIMEOUT = 60.0  # seconds; a node that takes longer joins when its reply comes
MOST_CLASSES = 100_000  # the largest claim decides the model's size


@dataclass(frozen=True)
class Member:
    """One client, as its node described it."""

    id: str
    place: int  # its partition, where the nodes were numbered; else -1
    samples: int
    test_samples: int
    input_shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    pixels: bool
    classes: int  # -1: regression
    cluster: int | None  # the true one, where it is known
    node: int = 0  # where it is now; 0: not connected
    class_counts: tuple[int, ...] = ()  # where classes are to be balanced
    feature_moments: Moments = ()  # where features are to be scaled
    target_moments: Moments = ()  # where targets are
    first: bool = True  # whether it was there before the first round: it decides on scales and the model

    @property
    def kind(self) -> tuple[object, ...]:
        """What must be the same for all clients."""
        return self.input_shape, self.target_shape, self.pixels, self.classes < 0, self.cluster is None

    @property
    def told(self) -> tuple[bool, bool]:
        """Whether it told means and variances of features and targets: one who does not ends it for all."""
        return bool(self.feature_moments), bool(self.target_moments)


def query_members(
    exchange: Exchange,
    nodes: Sequence[int],
    faults: FaultLog,
    t: int,
    timeout: float,
    preparation: str = "",
) -> tuple[list[Member], set[int]]:
    """Ask nodes who they are: the clients by place, then id, and the nodes that did not reply in time.

    preparation: as of Session.
    """
    told = RecordDict()
    if preparation:
        told[TURN] = ConfigRecord({"preparation": preparation})
    answers = exchange.send_and_receive("query", dict.fromkeys(nodes, told), timeout)
    names = exchange.names()
    found = [member_of(answers.replies.get(node), node, faults, t, names.get(node, "?")) for node in nodes]
    members = [member for member in found if member is not None]
    return sorted(members, key=lambda member: (member.place, member.id)), answers.silent


def member_of(reply: Message | None, node: int, faults: FaultLog, t: int, name: str = "?") -> Member | None:
    """The client that a node describes in its reply to a query; None and a fault where it cannot.

    name: under which its key was registered, for the fault.
    """
    try:
        return _described(content_of(reply), node)
    except Unusable as reason:
        faults.add(t, name, node, reason.kind, str(reason))
        return None


def _described(reply: Message, node: int) -> Member:
    try:
        told: Any = reply.content.config_records[REPLY]
        member = Member(
            id=str(told["id"]),
            place=int(told["place"]),
            samples=int(told["samples"]),
            test_samples=int(told["test_samples"]),
            input_shape=tuple(map(int, told["input_shape"])),
            target_shape=tuple(map(int, told["target_shape"])),
            pixels=bool(told["pixels"]),
            classes=int(told["classes"]),
            cluster=int(told["cluster"]) if "cluster" in told else None,
            node=node,
            class_counts=tuple(map(int, told.get("class_counts", ()))),
            feature_moments=tuple(map(float, told.get("feature_moments", ()))),
            target_moments=tuple(map(float, told.get("target_moments", ()))),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as reason:
        raise Unusable("malformed", f"its description has no usable {reason}") from reason
    _check(member)
    return member


def _check(member: Member) -> None:
    """Refuse what no honest client says of itself; whatever came of it would stop the run for all."""
    if not 0 < len(member.id) <= LONGEST_NAME or not member.id.isprintable():
        raise Unusable("malformed", f"its name is {member.id[:40]!r}")
    if not (0 < member.samples < MOST and 0 <= member.test_samples < MOST):
        raise Unusable("malformed", f"it has {member.samples} samples and {member.test_samples} to test")
    if member.classes > MOST_CLASSES:
        raise Unusable("malformed", f"it has labels of {member.classes} classes")
    counts = member.class_counts
    if counts and (len(counts) != member.classes or min(counts) < 0 or sum(counts) != member.samples):
        raise Unusable("malformed", f"its classes have {counts} samples")
    told = (member.feature_moments, member.input_shape), (member.target_moments, member.target_shape)
    if not all(are_possible(*one) for one in told):
        raise Unusable("malformed", "it tells impossible means and variances of its samples")
    sizes = (*member.input_shape, *member.target_shape)
    if any(size < 1 for size in sizes) or math.prod(sizes) >= MOST:
        raise Unusable("malformed", f"its samples have shape {member.input_shape}, {member.target_shape}")
