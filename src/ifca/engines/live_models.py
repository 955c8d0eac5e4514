"""Engines see models only: the places among the k that are free at the moment are left out, and put back."""

from __future__ import annotations

import torch
from torch import Tensor

from ifca.core.averages import zero_sum
from ifca.core.sketch import Sketch
from ifca.core.types import ClusterSum, Params, live_models, select
from ifca.data import Clients
from ifca.engines.base import Engine, Replies, Scores


def train_live(
    engine: Engine, theta: Params, who: Tensor, known: Tensor, t: int, sketch: Sketch | None = None
) -> Replies:
    """A round of the live models; identities, losses and sums in the numbers of all k places."""
    live = live_models(theta)
    if bool(live.all()):
        return engine.train(theta, who, known, t, sketch)
    models, own, places = live_part(theta, known)
    replies = engine.train(models, who, own, t, sketch)
    total = zero_sum(theta)
    for name, value in replies.total.total.items():
        total.total[name][places] = value
    total.weight[places] = replies.total.weight
    losses = None if replies.losses is None else _spread(replies.losses, places, len(live))
    return replies._replace(identity=places[replies.identity], losses=losses, total=total)


def live_part(theta: Params, known: Tensor) -> tuple[Params, Tensor, Tensor]:
    """The live models, known identities (-1: not known) in their numbers, and their places among the k."""
    live = live_models(theta)
    places = torch.nonzero(live)[:, 0]
    number = torch.full_like(live, -1, dtype=torch.long)
    number[places] = torch.arange(len(places))
    return select(theta, places), torch.where(known < 0, known, number[known.clamp(min=0)]), places


def score_live(engine: Engine, theta: Params, clients: Clients, own: Tensor | None = None) -> Scores:
    """Judge the live models; the others' scores are NaN."""
    live = live_models(theta)
    if own is not None or bool(live.all()):
        return engine.score(theta, clients, own)
    places = torch.nonzero(live)[:, 0]
    scores = engine.score(select(theta, places), clients)
    loss, correct = (_spread(table, places, len(live)) for table in scores[:2])
    return Scores(loss, correct, scores.answered)


def replaced(total: ClusterSum, again: ClusterSum, place: int) -> ClusterSum:
    """The sums of a round in which one cluster's members were asked again: theirs are the second ones."""
    kept = {name: value.clone() for name, value in total.total.items()}
    weight = total.weight.clone()
    weight[place] = 0
    for value in kept.values():
        value[place] = 0
    return ClusterSum(kept, weight) + again


def _spread(table: Tensor, places: Tensor, k: int) -> Tensor:
    wide = table.new_full((len(table), k), torch.nan)
    wide[:, places] = table
    return wide
