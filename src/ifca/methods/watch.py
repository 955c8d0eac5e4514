"""What the server remembers of the replies, to see a collapse: no more than it is sent anyway."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.recipe import Recipe
from ifca.core.sketch import WIDTH
from ifca.core.types import ClusterState, Params, Watch, live_models

TRIAL = 5  # rounds after which a split is judged
FASTER = 1.2  # how much longer the next step of fewer models than k is, while the loss falls


def begin(m: int, k: int) -> Watch:
    """Nothing seen yet."""
    unknown = torch.full((k,), torch.nan)
    return Watch(
        sketch=torch.zeros(m, WIDTH),
        losses=unknown.expand(m, k).clone(),
        seen=torch.full((m,), -1),
        born=torch.full((k,), -1),
        before=unknown,
        last=torch.full((m,), -1),
        held=torch.zeros(m, dtype=torch.bool),
        given=torch.full((m,), -1),
        waits=torch.zeros(m, dtype=torch.bool),
        until=0,
        due=0,
        tried=-1,
        pace=0.0,
        loss=math.inf,
    )


def window(recipe: Recipe) -> int:
    """Rounds in which most clients have taken part."""
    return math.ceil(1 / recipe.participation)


def check_is_due(t: int) -> bool:
    """In every one of the first rounds, later in every fifth."""
    return t < 2 * TRIAL or t % TRIAL == 0


def without_judges(state: ClusterState, who: Tensor) -> Tensor:
    """The participants of a round; while a split is tried, some clients of its groups wait."""
    if state.watch is None or state.round >= state.watch.until:
        return who
    trains = who[~state.watch.waits[who]]
    return trains if len(trains) else who


def remember(
    state: ClusterState,
    who: Tensor,
    asked: Tensor,
    identity: Tensor,
    losses: Tensor | None,
    sketch: Tensor | None,
) -> ClusterState:
    """The state with the replies of this round noted: identities, losses, and each participant's update
    relative to those of its cluster. asked: [p] who judged all models.
    """
    watch, t = watch_of(state), state.round
    table, drawn, seen = watch.losses.clone(), watch.sketch.clone(), watch.seen.clone()
    found, last = state.identity.clone(), state.asked.clone()
    found[who], last[who[asked]] = identity, t
    clients, held = who[asked], watch.held.clone()
    untrained = watch.last[clients] <= watch.tried
    news = untrained | ~(held & (watch.given >= 0))[clients]  # those from before its training are kept
    if losses is not None:
        table[clients[news]] = losses[asked][news].to(table)
    held[clients] |= untrained
    if sketch is not None:
        for j in sorted(set(identity.tolist())):
            rows = torch.nonzero((identity == j) & torch.isfinite(sketch).all(1))[:, 0]
            if len(rows) > 1:
                drawn[who[rows]] = _relative(sketch[rows].double()).to(drawn)
                seen[who[rows]] = t
    took_part = watch.last.clone()
    took_part[who] = t
    watch = replace(watch, losses=table, sketch=drawn, seen=seen, last=took_part, held=held)
    return replace(state, identity=found, asked=last, watch=watch)


def paced(watch: Watch, theta: Params, loss: float) -> Watch:
    """The share of its step that option I takes now. loss: the mean of this round's participants.

    In k equal clusters each model moves by gamma/k of its members' mean gradient. Fewer models begin at that
    pace, because a step that is right for k may be too long for one, and go faster while the loss falls.
    """
    least = float(live_models(theta).float().mean())
    pace = watch.pace * FASTER if loss < watch.loss else watch.pace / 2
    return replace(watch, pace=min(1.0, max(least, pace)), loss=loss)


def watch_of(state: ClusterState) -> Watch:
    """The memory of a state that has one."""
    assert state.watch is not None
    return state.watch


def _relative(sketch: Tensor) -> Tensor:
    """Updates of one cluster's participants, as deviations from their mean, of mean square 1."""
    apart = sketch - sketch.mean(0)
    largest = apart.abs().max().clamp(min=1e-300)
    apart = apart / largest
    return apart / apart.square().sum(1).mean().sqrt().clamp(min=1e-30)
