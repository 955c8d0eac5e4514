"""Rejected replies in the state and the record of a round: who, why, and who is left out from now on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ifca.core.callbacks import Record
from ifca.core.checks import in_a_row, left_out
from ifca.core.recipe import Recipe
from ifca.core.replies import Replies
from ifca.core.types import ClusterState
from ifca.engines.base import Engine


def is_checked(recipe: Recipe, engine: Engine | None) -> bool:
    """Whether clients' words are held against each other: always where they are elsewhere."""
    return recipe.check_updates or (engine is not None and engine.name == "flower")


def checked(
    ids: Sequence[str], before: ClusterState, after: ClusterState, asked: Tensor, replies: Replies
) -> tuple[ClusterState, Record]:
    """The state after a round with each client's rejections in a row, and what its record says of them.

    ids: [m] the clients' names; asked: [p]. Nothing is said of a round in which nobody was rejected.
    """
    m = len(before.identity)
    if not replies.rejected and not before.checks:
        return after, {}
    used = torch.ones(len(asked), dtype=torch.bool) if replies.answered is None else replies.answered
    count = before.checks.get("in_a_row", torch.zeros(m, dtype=torch.long))
    after = replace(after, checks={"in_a_row": in_a_row(count, asked, replies.rejected, used)})
    told: Record = {}
    if replies.rejected:
        told["rejected"] = [
            {"client": ids[int(asked[one.row])], "why": one.kind, "detail": one.detail}
            for one in replies.rejected
        ]
    gone = left_out(after.checks, m) & ~left_out(before.checks, m)
    if bool(gone.any()):
        told["left_out"] = [ids[i] for i in torch.nonzero(gone)[:, 0].tolist()]
    return after, told


def rejected_in(history: Sequence[Record]) -> dict[str, Any]:
    """What a summary says of all rounds: how many replies, by client and by reason, and who was left out."""
    found = [one for record in history for one in record.get("rejected", [])]
    return {
        "replies": len(found),
        "clients": dict(Counter(one["client"] for one in found)),
        "why": dict(Counter(one["why"] for one in found)),
        "left_out": {name: record["round"] + 1 for record in history for name in record.get("left_out", [])},
    }
