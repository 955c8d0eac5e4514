"""What the server remembers of the replies, to see a collapse: no more than it is sent anyway."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from ifca.core.recipe import Recipe
from ifca.core.sketch import WIDTH
from ifca.core.types import ClusterState, Params

TRIAL = 5  # rounds after which a split is judged
FASTER = 1.2  # how much longer the next step of fewer models than k is, while the loss falls


@dataclass(frozen=True)
class Watch:
    """What the server remembers of the replies, to detect and repair a collapse (collapse.py)."""

    sketch: Tensor  # [m, q] each client's last update, relative to its cluster's
    losses: Tensor  # [m, k] the losses it last sent; NaN: model not judged
    seen: Tensor  # [m] the round of both; -1: none
    born: Tensor  # [k] the round in which model j was split off; -1: there from the start
    before: Tensor  # [k] the mean loss of the clients of the split cluster in that round; NaN: no trial
    last: Tensor  # [m] the last round in which each client took part; -1: never
    held: Tensor  # [m] whether its losses are from before it was trained on any model of the attempt below
    given: Tensor  # [m] the model that each client is given for a while after an attempt to split; -1: none
    waits: Tensor  # [m] who does not take part for that while, to be an honest judge after it
    until: int  # the round from which clients choose again
    due: int  # the round from which models on trial are judged
    tried: int  # the last round in which a split was begun without clear groups; -1: none
    pace: float  # option I: the share of its step that a round takes while there are fewer models than k
    loss: float  # the participants' mean loss in the last round

    def as_memory(self) -> Params:
        """As a state carries it, and a checkpoint writes it: tensors by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _tensor(value) for name, value in found.items()}

    def widened(self, new: int) -> Watch:
        """With clients at the end, of whom nothing is remembered."""
        empty = begin(new, len(self.born))
        rows: dict[str, Any] = {
            name: torch.cat([getattr(self, name), getattr(empty, name)]) for name in PER_CLIENT
        }
        return replace(self, **rows)


PER_CLIENT = ("sketch", "losses", "seen", "last", "held", "given", "waits")


def watch_of(state: ClusterState) -> Watch:
    """The memory of a state that has one."""
    single = {field.name for field in fields(Watch) if field.type in ("int", "float")}
    kept: dict[str, Any] = dict(state.memory)
    return Watch(**{name: value.item() if name in single else value for name, value in kept.items()})


def _tensor(value: Tensor | float) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.long)


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


def without_judges(watch: Watch, t: int, who: Tensor) -> Tensor:
    """The participants of round t; while a split is tried, some clients of its groups wait."""
    trains = who[~watch.waits[who]] if t < watch.until else who
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
    before_it = watch.last[clients] < watch.tried
    waited = (watch.last == watch.tried) & watch.waits  # in the attempt's own round the others trained
    untrained = before_it | waited[clients]
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
    return replace(state, identity=found, asked=last, memory=watch.as_memory())


def paced(watch: Watch, live: Tensor, loss: float) -> Watch:
    """The share of its step that option I takes now. loss: the mean of this round's participants.

    In k equal clusters each model moves by gamma/k of its members' mean gradient. Fewer models begin at that
    pace, because a step that is right for k may be too long for one, and go faster while the loss falls.
    """
    least = float(live.float().mean())
    pace = watch.pace * FASTER if loss < watch.loss else watch.pace / 2
    return replace(watch, pace=min(1.0, max(least, pace)), loss=loss)


def _relative(sketch: Tensor) -> Tensor:
    """Updates of one cluster's participants, as deviations from their mean, of mean square 1."""
    apart = sketch - sketch.mean(0)
    largest = apart.abs().max().clamp(min=1e-300)
    apart = apart / largest
    return apart / apart.square().sum(1).mean().sqrt().clamp(min=1e-30)
