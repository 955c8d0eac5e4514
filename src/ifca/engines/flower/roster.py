"""Who is in the federation: the server's view of its clients, names and sizes but no data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from ifca.core.errors import InvalidInput
from ifca.data import Clients, Federation
from ifca.engines.flower.exchange import Exchange
from ifca.engines.flower.faults import FaultLog, Unusable, content_of
from ifca.engines.flower.moments import Moments, are_possible, scaling_of
from ifca.engines.flower.records import REPLY, TURN

LONGEST_NAME, MOST = 200, 2**31  # letters of a client's name; samples, and numbers of one sample
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


@dataclass(frozen=True)
class Roster:
    """All clients that were ever seen in a run, in the order of their arrival."""

    members: tuple[Member, ...]
    begun: bool = False  # whether rounds have begun

    def federation(self) -> Federation:
        """The federation as rounds need it: ids, sizes and shapes; its arrays have no rows."""
        tested = [member for member in self.members if member.test_samples]
        classes = max(member.classes for member in self.members)
        test = _clients(tested, "test_samples") if tested else None
        whole = Federation(_clients(self.members, "samples"), test, None if classes < 0 else classes)
        first = [member for member in self.members if member.first]
        return replace(
            whole,
            class_counts=_summed([member.class_counts for member in first], classes),
            scaling=scaling_of([(m.samples, m.feature_moments) for m in first], first[0].input_shape),
            target_scaling=scaling_of([(m.samples, m.target_moments) for m in first], first[0].target_shape),
            first_samples=sum(member.samples for member in first),
        )

    def node(self, name: str) -> int:
        """Where a client is, 0: nowhere."""
        return self._nodes[name]

    @cached_property
    def _nodes(self) -> dict[str, int]:
        return {member.id: member.node for member in self.members}

    def joined(self, found: Iterable[Member], connected: Sequence[int], faults: FaultLog, t: int) -> Roster:
        """With new clients at the end, known ones at their new nodes. A name in use is not given twice."""
        members = {member.id: member for member in self.members}
        for new in found:
            old = members.get(new.id)
            if old is not None and old.node in connected and old.node != new.node:
                faults.add(t, new.id, new.node, "refused", f"node {old.node} has this name already")
            elif members and new.kind != next(iter(members.values())).kind:
                faults.add(t, new.id, new.node, "refused", "its samples are of another kind than the others'")
            elif not self.begun and members and new.told != next(iter(members.values())).told:
                detail = "others are to be standardised and it is not, or it is and they are not"
                faults.add(
                    t, new.id, new.node, "refused", f"{detail}: its config must say the same as theirs"
                )
            elif old is not None:
                members[new.id] = replace(old, node=new.node)
            else:
                members[new.id] = replace(new, first=not self.begun)
        return Roster(tuple(members.values()), self.begun)

    def to_json(self) -> list[dict[str, Any]]:
        """For roster.json; where clients were is of no use to a later process."""
        return [{**asdict(member), "node": 0} for member in self.members]

    @classmethod
    def from_json(cls, content: list[dict[str, Any]]) -> Roster:
        """The inverse of to_json."""
        lists = ("input_shape", "target_shape", "class_counts", "feature_moments", "target_moments")
        known = [{name: tuple(one[name]) for name in lists if name in one} for one in content]
        members = tuple(Member(**{**one, **two}) for one, two in zip(content, known, strict=True))
        return cls(members, begun=bool(members))


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
    found = [member_of(answers.replies.get(node), node, faults, t) for node in nodes]
    members = [member for member in found if member is not None]
    return sorted(members, key=lambda member: (member.place, member.id)), answers.silent


def member_of(reply: Message | None, node: int, faults: FaultLog, t: int) -> Member | None:
    """The client that a node describes in its reply to a query; None and a fault where it cannot."""
    try:
        return _described(content_of(reply), node)
    except Unusable as reason:
        faults.add(t, "?", node, reason.kind, str(reason))
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


def _summed(counts: Sequence[tuple[int, ...]], classes: int) -> tuple[int, ...] | None:
    """Samples of each class over all clients; None: somebody did not say."""
    if not all(counts):
        return None
    return tuple(sum(one[c] for one in counts if c < len(one)) for c in range(classes))


def _clients(members: Sequence[Member], size: str) -> Clients:
    first = members[0]
    if any(getattr(member, size) < 1 for member in members):
        raise InvalidInput("a client has no samples")
    offsets = np.cumsum([0, *[getattr(member, size) for member in members]]).astype(np.int64)
    x = torch.empty(0, *first.input_shape, dtype=torch.uint8 if first.pixels else torch.float32)
    y = torch.empty(0, *first.target_shape, dtype=torch.float32 if first.classes < 0 else torch.long)
    known = [member.cluster for member in members if member.cluster is not None]
    true = np.array(known, np.int64) if len(known) == len(members) else None
    return Clients(x, y, offsets, tuple(member.id for member in members), true)
