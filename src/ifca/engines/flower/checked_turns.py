"""The turns of a round over the wire, held against each other: what is used, what is rejected and logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from flwr.app import Message
from torch import Tensor

from ifca.core.averages import zero_sum
from ifca.core.errors import Diverged, TooFewClients
from ifca.core.rejections import IN_A_ROW, spoiled
from ifca.core.replies import Needs, Rejection, Replies
from ifca.core.sampling import count_aside
from ifca.core.types import ClientReply, Params
from ifca.data import Clients
from ifca.engines.collect import Collected
from ifca.engines.flower.exchange import Answers
from ifca.engines.flower.faults import Unusable, content_of
from ifca.engines.memory_budget import DEFAULT_BUDGET

if TYPE_CHECKING:
    from ifca.engines.flower.flower_engine import FlowerEngine

Turn = tuple[int, list[float], Params]
"""A usable reply: identity, losses [k], update."""


def reply_of(answers: Answers, node: int) -> Message:
    """The reply of a node, where it sent one that has content."""
    if node in answers.busy:
        raise Unusable("busy", "still owes the reply to an earlier message")
    if node not in answers.replies and node not in answers.silent:
        raise Unusable("absent", "not connected")
    return content_of(answers.replies.get(node))


def needed(min_clients: int, asked: int, rejected: list[Rejection]) -> int:
    """Usable replies that a round needs: of fewer than min_clients all, but for those left out now."""
    times = Counter(one.row for one in rejected)
    return min(min_clients, max(1, asked - sum(count >= IN_A_ROW for count in times.values())))


def collected(
    engine: FlowerEngine,
    theta: Params,
    who: Tensor,
    known: Tensor,
    turns: dict[int, Turn],
    refused: list[Rejection],
    needs: Needs,
) -> tuple[Replies, list[Rejection]]:
    """Those who answered, in the order of the participants whatever order they came in; and all rejections,
    those that were refused by themselves and those that stand out among the others.
    """
    heard = [row for row, i in enumerate(who.tolist()) if i in turns]
    if heard:
        replies = _put_together(
            engine, theta, [turns[int(who[row])] for row in heard], who, known, heard, needs
        )
    else:
        replies = Replies(who[:0], torch.empty(0), None, zero_sum(theta))
    now = [one._replace(row=heard[one.row]) for one in replies.rejected]
    for one in now:
        name = engine.federation.train.ids[int(who[one.row])]
        node = engine.session.roster.node(name)
        engine.session.faults.add(engine.t, name, node, one.kind, one.detail)
    rejected = [*refused, *now]
    if (why := spoiled(replies.identity, rejected)) is not None:
        raise Diverged(
            f"training diverged: in round {engine.t + 1} {why}; try a smaller step_size than "
            f"{engine.recipe.step_size}"
        )
    gone = {one.row for one in now}
    answered = torch.tensor([row in heard and row not in gone for row in range(len(who))])
    return replies._replace(answered=None if bool(answered.all()) else answered, rejected=()), rejected


def _put_together(
    engine: FlowerEngine,
    theta: Params,
    turns: list[Turn],
    who: Tensor,
    known: Tensor,
    heard: list[int],
    needs: Needs,
) -> Replies:
    def again(rows: Tensor) -> Iterator[tuple[Tensor, Params]]:
        for at, row in enumerate(rows.tolist()):
            yield torch.tensor([at]), {name: v[None] for name, v in turns[row][2].items()}

    sizes, like = engine.federation.train.sizes[who[heard].numpy()], next(iter(theta.values()))
    sizes = sizes - count_aside(sizes) if engine.aside(needs) else sizes
    found = Collected(engine.recipe, theta, sizes, known[heard], needs, again, DEFAULT_BUDGET, checked=True)
    for row, (j, losses, update) in enumerate(turns):
        table = torch.tensor([losses], dtype=torch.float64).to(like.dtype)
        one = {name: value[None] for name, value in update.items()}
        found.add(torch.tensor([row]), ClientReply(torch.tensor([j]), table, one))
    return found.replies()


def nobody_scored(engine: FlowerEngine, clients: Clients, part: str) -> Diverged | TooFewClients:
    """Why no client told what it loses: the models serve nobody any more, or nobody is there."""
    nodes = [engine.session.roster.node(name) for name in clients.ids]
    why = [engine.session.faults.reasons.get(node, "") for node in nodes]
    if any(reason.startswith("not-finite") for reason in why):
        return Diverged(
            f"training diverged: after round {engine.t + 1} no client's loss is finite; try a smaller "
            f"step_size than {engine.recipe.step_size}"
        )
    first = next(filter(None, why), "not connected")
    return TooFewClients(
        f"none of {len(clients)} clients told how well the models do on its {part} data; the first: {first}"
    )
