"""Rejected replies in the state and the record of a round: who, why, and who is left out from now on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ifca.core.callbacks import Record
from ifca.core.errors import Diverged
from ifca.core.recipe import Recipe
from ifca.core.rejections import in_a_row, left_out, spoiled, too_many
from ifca.core.replies import Replies
from ifca.core.types import ClusterState
from ifca.engines.base import Engine
from ifca.training.going_back import halves


def is_checked(recipe: Recipe, engine: Engine | None) -> bool:
    """Whether clients' words are held against each other: always where they are elsewhere."""
    return recipe.check_updates or (engine is not None and engine.name == "flower")


def check_models(recipe: Recipe, t: int, replies: Replies) -> None:
    """Refuse models under which most clients of one have no numbers to send."""
    if replies.answered is None:
        return
    unused = [one for one in replies.rejected if not bool(replies.answered[one.row])]
    if (why := spoiled(replies.identity, unused)) is not None:
        raise _diverged(recipe, t, why)


def _diverged(recipe: Recipe, t: int, why: str) -> Diverged:
    return Diverged(
        f"training diverged: in round {t + 1} {why}; try a smaller step_size than {recipe.step_size}"
    )


def checked(
    recipe: Recipe,
    ids: Sequence[str],
    before: ClusterState,
    after: ClusterState,
    asked: Tensor,
    replies: Replies,
) -> tuple[ClusterState, Record]:
    """The state after a round with each client's rejections in a row, and what its record says of them.

    ids: [m] the clients' names; asked: [p]. Nothing is said of a round in which nobody was rejected.
    """
    m = len(before.identity)
    if not replies.rejected and not before.checks:
        return after, {}
    used = torch.ones(len(asked), dtype=torch.bool) if replies.answered is None else replies.answered
    after = replace(after, checks=in_a_row(before.checks, m, asked, replies.rejected, used))
    if halves(recipe) and (why := too_many(after.checks, recipe.attackers)) is not None:
        raise _diverged(recipe, before.round, why)
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
    gone = dict[str, int]()
    for record in history:
        for halving in record.get("halved", []):
            for name in halving.get("asked_again", []):
                gone.pop(name, None)
        gone |= dict.fromkeys(record.get("left_out", []), record["round"] + 1)
    return {
        "replies": len(found),
        "clients": dict(Counter(one["client"] for one in found)),
        "why": dict(Counter(one["why"] for one in found)),
        "left_out": gone,
    }
