"""Models that clients train alone from one start, as the server is sent them, and their trimmed means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.replies import Blocks, Needs, Replies, Updates
from ifca.core.types import ClusterState, Params, everywhere, places_of
from ifca.methods.aggregation import Aggregation
from ifca.methods.averaging import check_models
from ifca.methods.method import Ask, Problem, Round
from ifca.methods.robust_rules import trimmed_mean

TRIMMED = 0.15  # share of a cluster's clients that is left out at each end of a coordinate
SUMS = Needs()


def own_models(problem: Problem, sent: Params, updates: Updates, t: int) -> Params:
    """Each participant's model after its turn in round t [p, ...]. sent: the model that each began with.

    With option I a client sends a gradient: its model is one step along it. Shared layers are the same in
    all models, as always: their means.
    """
    recipe, names = problem.recipe, frozenset(sent)
    found = {name: value.clone().flatten(1) for name, value in sent.items()}
    for part, values in zip(updates.layout(names), updates.blocks(names), strict=True):
        some = found[part.name][:, part.start : part.start + part.width]
        some.copy_(some - recipe.step(t) * values if recipe.option == "gradient" else values)
    for name in problem.shared:
        found[name][:] = found[name].double().mean(0).to(found[name].dtype)
    return {name: value.reshape(sent[name].shape) for name, value in found.items()}


def trained_alone(
    problem: Problem, state: ClusterState, now: Round, ask: Ask
) -> tuple[Params, list[Replies]]:
    """The participants' own models [p, ...]; the round itself was the first of erm_rounds."""
    recipe, p, replies = problem.recipe, len(now.who), [now.replies]
    own = {name: value[:1].expand(p, *value.shape[1:]) for name, value in state.theta.items()}
    for t in range(recipe.erm_rounds):
        if t > 0:
            replies.append(turn_with(ask, state, own, t, now.who, torch.arange(p), Needs(updates=True)))
        here = replies[-1].answered if t > 0 else None
        updates = replies[-1].updates
        assert updates is not None
        rows = torch.arange(p) if here is None else places_of(here)  # who does not answer keeps its model
        after = own_models(problem, {name: value[rows] for name, value in own.items()}, updates, t)
        own = {
            name: value.clone().index_copy(0, rows.to(value.device), after[name])
            for name, value in own.items()
        }
    check_models(recipe, 0, own)
    return own, replies


def turn_with(
    ask: Ask,
    state: ClusterState,
    theta: Params,
    t: int,
    who: Tensor,
    known: Tensor,
    needs: Needs = SUMS,
) -> Replies:
    """Another turn of round t with other models than those of the state."""
    return ask.turn(replace(state, theta=theta, live=everywhere(theta), round=t), who, known, needs)


def spent(
    state: ClusterState, who: Tensor, replies: list[Replies], *, down: int, up: int
) -> tuple[Tensor, Tensor]:
    """Bytes so far by client, with those of some turns: measured, or what they must carry."""
    sums = state.bytes_down.clone(), state.bytes_up.clone()
    measured = [one.carried for one in replies if one.carried is not None]
    for way, count in enumerate((down, up)):
        if measured:
            sums[way].add_(sum((one[way] for one in measured), torch.zeros_like(sums[way])))
        else:
            sums[way][who] += count
    return sums


def trimmed(blocks: Blocks, _weight: Tensor) -> Iterator[Tensor]:
    """The authors' trimmed mean, of a share that is rounded down."""
    return (trimmed_mean(values, math.floor(TRIMMED * len(values))) for values in blocks())


RULE = Aggregation("sr-fca-trimmed", "The mean without 15% at each end of a coordinate.", trimmed)


def trimmed_models(problem: Problem, own: Params, group: Tensor) -> Params:
    """Trimmed means of the members' own models [k, ...], -1: of no group. group: [p]."""

    def mean(value: Tensor, some: Tensor) -> Tensor:
        flat = value[some.to(value.device)].flatten(1)
        combined = next(trimmed(lambda: iter([flat]), flat[:, 0]))
        return combined.to(value.dtype).reshape(value.shape[1:])

    theta = {name: value.new_zeros(problem.models, *value.shape[1:]) for name, value in own.items()}
    for j in sorted(set(group.tolist()) - {-1}):
        for name, value in own.items():
            theta[name][j] = mean(value, group == j) if name not in problem.shared else value[0]
    return theta
