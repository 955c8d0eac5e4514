"""Replies that were not used: when a client is left out, and when it is the step that is to blame.

Honest clients send what is far too long, or no numbers, where the step is too long for them. So two things
are no client's fault: that most clients of a model have no numbers to send, and that more clients than may
attack are about to be left out. Then the step is halved for all, and they are asked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from ifca.core.checks import FEWEST
from ifca.core.replies import Rejection
from ifca.core.types import Params

IN_A_ROW = 3  # rejections, after which a client is left out
STEP = ("too-large", "not-finite")  # what honest replies are, too, where the step is too long
FORGIVEN = 3  # times at most that half the step may mend a client's: no attack halves it without end


def spoiled(identity: Tensor, rejected: Sequence[Rejection]) -> str | None:
    """Where most clients of a model send no numbers, it is the model that does not serve, not the clients.

    identity: [p] the clusters of the replies that are used.
    """
    bad = Counter(one.cluster for one in rejected if one.kind == "not-finite" and one.cluster >= 0)
    good = Counter(identity.tolist())
    for j, count in bad.items():
        if count > good[j] and (count >= FEWEST or not good):
            return (
                f"{count} of {count + good[j]} clients of a model reply with a loss or an update that is not "
                "finite"
            )
    return None


def in_a_row(
    before: Params, m: int, asked: Tensor, rejected: Sequence[Rejection], answered: Tensor
) -> Params:
    """Of each client [m] after a round the rejections in a row; whether the last was for what a step that is
    too long makes of honest replies, too; and how often such rejections were forgiven before.

    asked: [p] clients; answered: [p] whether the reply was used; a rejection's row is among these p.
    """
    none = torch.zeros(m, dtype=torch.long)
    after = {name: before.get(name, none).clone() for name in ("in_a_row", "of_step", "forgiven")}
    after["in_a_row"][asked[answered]] = 0
    for one in rejected:
        if not bool(answered[one.row]):
            after["in_a_row"][asked[one.row]] += 1
            after["of_step"][asked[one.row]] = int(one.kind in STEP)
    return after


def forgiven(checks: Params) -> tuple[Params, Tensor]:
    """The same with rejections forgotten that half the step may mend; and who is asked again by that: [m]."""
    if not checks:
        return checks, torch.zeros(0, dtype=torch.bool)
    count, before = checks["in_a_row"], checks.get("forgiven", torch.zeros_like(checks["in_a_row"]))
    now = (count > 0) & (checks.get("of_step", before) > 0) & (before < FORGIVEN)
    after = {"in_a_row": count.where(~now, 0), "forgiven": before + now.long()}
    return {**checks, **after}, now & left_out(checks, len(count))


def too_many(checks: Params, attackers: float) -> str | None:
    """That more clients stand out than are assumed to attack: it is the step. None: so few may lie."""
    m = len(checks["in_a_row"])
    honest = left_out(checks, m) & (checks["of_step"] > 0) & (checks["forgiven"] < FORGIVEN)
    if int(honest.sum()) <= max(1.0, attackers * m):
        return None
    return (
        f"the changes of {int(honest.sum())} of {m} clients were too large or no numbers {IN_A_ROW} times in "
        f"a row, and attackers = {attackers:g} is the largest share that is taken for an attack"
    )


def left_out(checks: Params, m: int) -> Tensor:
    """Who is not asked any more [m]: rejected IN_A_ROW times in a row."""
    found = checks.get("in_a_row")
    return torch.zeros(m, dtype=torch.bool) if found is None else found >= IN_A_ROW
