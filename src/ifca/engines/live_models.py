"""Engines are given the models that are there; what they say is put back in the numbers of all k places."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.averages import zero_sum
from ifca.core.replies import Needs, Replies, Scores
from ifca.core.types import ClusterState, Params, places_of, select
from ifca.data import Clients
from ifca.engines.base import SUMS, Engine


def train_live(
    engine: Engine, state: ClusterState, who: Tensor, known: Tensor, needs: Needs = SUMS
) -> Replies:
    """A round of the live models; identities, losses and sums in the numbers of all k places."""
    if bool(state.live.all()):
        return engine.train(state.theta, who, known, state.round, needs)
    models, own, places = live_part(state.theta, state.live, known)
    replies = engine.train(models, who, own, state.round, needs)
    total = zero_sum(state.theta)
    for name, value in replies.total.total.items():
        total.total[name][places] = value.to(total.total[name])  # of single clients they are not double
    total.weight[places] = replies.total.weight
    losses = None if replies.losses is None else _spread(replies.losses, places, len(state.live))
    own = places[replies.identity]
    rejected = tuple(
        one if one.cluster < 0 else one._replace(cluster=int(places[one.cluster])) for one in replies.rejected
    )
    return replies._replace(identity=own, losses=losses, total=total, rejected=rejected)


def live_part(theta: Params, live: Tensor, known: Tensor) -> tuple[Params, Tensor, Tensor]:
    """The live models, known identities (-1: not known) in their numbers, and their places among the k."""
    places = places_of(live)
    number = torch.full_like(live, -1, dtype=torch.long)
    number[places] = torch.arange(len(places))
    return select(theta, places), torch.where(known < 0, known, number[known.clamp(min=0)]), places


def score_live(
    engine: Engine, theta: Params, live: Tensor, clients: Clients, own: Tensor | None = None
) -> Scores:
    """Judge the live models; the others' scores are NaN."""
    if own is not None or bool(live.all()):
        return engine.score(theta, clients, own)
    places = places_of(live)
    scores = engine.score(select(theta, places), clients)
    loss, correct = (_spread(table, places, len(live)) for table in scores[:2])
    return Scores(loss, correct, scores.answered)


def compact(state: ClusterState) -> ClusterState:
    """The state with its live models at the first places, clusters numbered anew; the memory as it was."""
    places = places_of(state.live)
    number = torch.full((len(state.live) + 1,), -1)  # the last entry: of nobody, -1
    number[places] = torch.arange(len(places))
    return replace(
        state,
        theta=select(state.theta, places),
        live=state.live[places],
        identity=number[state.identity],
    )


def _spread(table: Tensor, places: Tensor, k: int) -> Tensor:
    wide = table.new_full((len(table), k), torch.nan)
    wide[:, places] = table
    return wide
