"""Who is in the federation: the server's view of its clients, names and sizes but no data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ifca.core.checks import FEWEST
from ifca.core.errors import InvalidInput
from ifca.data import Clients, Federation
from ifca.engines.flower.agreement import Refused, another_has, another_kind, too_many_classes
from ifca.engines.flower.members import Member
from ifca.engines.flower.moments import scaling_of


@dataclass(frozen=True)
class Roster:
    """All clients that were ever seen in a run, in the order of their arrival."""

    members: tuple[Member, ...]
    begun: bool = False  # whether rounds have begun

    def federation(self) -> Federation:
        """The federation as rounds need it: ids, sizes and shapes; its arrays have no rows."""
        tested = [member for member in self.members if member.test_samples]
        test = _clients(tested, "test_samples") if tested else None
        whole = Federation(_clients(self.members, "samples"), test, self.classes)
        first = [member for member in self.members if member.first]
        return replace(
            whole,
            class_counts=_summed([member.class_counts for member in first], self.classes or 0),
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

    def joined(self, found: Iterable[Member], connected: Collection[int]) -> tuple[Roster, Refused]:
        """While rounds are done: new clients at the end, known ones at their new nodes; why others are not.

        A name in use is not given twice.
        """
        members, refused = {member.id: member for member in self.members}, Refused()
        first = self.members[0]
        for new in found:
            old = members.get(new.id)
            if old is not None and old.node in connected and old.node != new.node:
                refused[new.node] = another_has(new)
            elif (why := another_kind(new, first.kind) or too_many_classes(new, self.classes)) is not None:
                refused[new.node] = why
            elif old is not None:
                members[new.id] = replace(old, node=new.node)
            else:
                members[new.id] = replace(new, first=False)
        return Roster(tuple(members.values()), begun=True), refused

    @property
    def classes(self) -> int | None:
        """As the models have them; None: a regression."""
        largest = max(member.classes for member in self.members)
        return None if largest < 0 else largest

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


def _summed(counts: Sequence[tuple[int, ...]], classes: int) -> tuple[int, ...] | None:
    """Samples of each class over all clients; None: somebody did not say.

    As in averages, no client counts for more than all others together, whatever number it claims.
    """
    if not all(counts):
        return None
    told = [sum(one) for one in counts]
    most = [max(1, sum(told) - mine) if len(told) >= FEWEST else mine for mine in told]  # all others together
    shown = [
        one if mine <= limit else tuple(count * limit // mine for count in one)
        for one, mine, limit in zip(counts, told, most, strict=True)
    ]
    return tuple(sum(one[c] for one in shown if c < len(one)) for c in range(classes))


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
