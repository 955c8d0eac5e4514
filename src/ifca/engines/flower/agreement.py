"""Which of the clients that gather can train together: most of them decide, not the first, and not one claim.

What clients tell before the first round decides for all: the kind of samples, and the number of classes. A
claim that stands alone, far beyond what the others tell, refuses its client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ifca.engines.flower.members import Member

CLASSES = 10  # times as many as every other client says; the model would grow for all
NAMES = ("shape", "shape of targets", "whole pixels", "numbers to predict", "cluster unknown")

Refused = dict[int, str]
"""Why a client is not taken, by node."""


def agreed(found: Sequence[Member], classes: int | None = None) -> tuple[list[Member], Refused]:
    """Of clients in the order in which they came: those who can train together, and why others cannot.

    classes: the largest number that the server's config allows.
    """
    kinds = Counter((member.kind, member.told) for member in found)
    if not kinds:
        return [], {}
    kind, told = kinds.most_common(1)[0][0]  # of equally many: the one that came first
    refused, taken = Refused(), dict[str, Member]()
    for member in found:
        if (why := another_kind(member, kind)) is not None:
            refused[member.node] = why
        elif member.told != told:
            detail = "most are to be standardised and it is not, or it is and they are not"
            refused[member.node] = f"{detail}: its config must say the same as theirs"
        elif taken.setdefault(member.id, member) is not member:
            refused[member.node] = another_has(member)
    alike = list(taken.values())
    refused |= _many_classes(alike, classes)
    return [member for member in alike if member.node not in refused], refused


def too_many_classes(member: Member, classes: int | None) -> str | None:
    """Why a client whose labels go beyond those of the models cannot join; None: it can."""
    if classes is None or member.classes <= classes:
        return None
    return f"its labels are of {member.classes} classes, the models' of {classes}"


def another_has(member: Member) -> str:
    """Why a client is not taken whose name is given."""
    return f"another client has the name {member.id!r}; give it one of its own by --name"


def another_kind(member: Member, kind: tuple[object, ...]) -> str | None:
    """What differs first between a client's kind and that of the others; None: nothing."""
    for name, mine, theirs in zip(NAMES, member.kind, kind, strict=True):
        if mine != theirs:
            return f"its samples are of another kind than the others': {name} {mine}, theirs {theirs}"
    return None


def _many_classes(members: Sequence[Member], most: int | None) -> Refused:
    """Labels beyond what the config says, or what every other client's labels make likely."""
    found = {m.node: why for m in members if (why := too_many_classes(m, most)) is not None}
    if most is not None or len(members) < 2:
        return found
    *_, second, largest = sorted(members, key=lambda member: member.classes)
    if largest.classes > CLASSES * max(second.classes, 1):
        found[largest.node] = (
            f"it says that it has labels of {largest.classes} classes, and no other has more than "
            f"{second.classes}; if that is right, set data.classes in the server's config"
        )
    return found
