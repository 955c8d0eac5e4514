"""The groups of IFCA's default as its server remembers them: what it knows, and how two models become one or
one becomes several.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ifca.core.replies import Replies
from ifca.core.types import ClusterState, places_of, without
from ifca.methods.founding import is_trial, own_is_best
from ifca.methods.memory import record_of, tensors_of
from ifca.methods.method import Event
from ifca.methods.referee import Verdict, averages
from ifca.methods.server_optimiser import forgotten

JUDGED, HELD, FREE = range(3)  # the stages
Step = tuple[ClusterState, list[Event]]


@dataclass(frozen=True)
class Memory:
    """What the server remembers beside models and identities."""

    given: Tensor  # [m] the place of the model that each client is given; -1: it chooses
    turns: Tensor  # [k] clients' turns that made a model
    evidence: Tensor  # [2, 3, k, k] what the referee was told of every two models
    sketch: Tensor  # [m, q] of each client's update while they are gathered, NaN: not heard; else [m, 0]
    stage: int
    parted: int  # the round from which on the groups train apart
    since: int  # the round from which on the referee is told
    moved: float  # share of clients that chose another model when they last could; NaN: they could not yet
    pace: float  # option I: the share of its step that a round takes while there are fewer models than k
    loss: float  # the participants' mean loss in the last round
    old: int = 0  # places 0 to old - 1 hold models of an earlier run: they stay, also where nobody has them

    def tries(self, t: int) -> bool:
        """Whether round t is a trial of clients that are held."""
        return self.stage == HELD and is_trial(t - self.parted)

    def judged(self, live: Tensor) -> list[int]:
        """The live places whose models are compared: not those of an earlier run that no client has."""
        places = places_of(live).tolist()
        return [j for j in places if j >= self.old or bool((self.given == j).any())]

    def new(self, said: list[Verdict]) -> list[Verdict]:
        """Verdicts of two models that were not both in the earlier run, which knew that it needs both."""
        return [one for one in said if max(one.pair) >= self.old]


def first_memory(given: Tensor, k: int, old: int = 0) -> Memory:
    """Before the first round: groups are known, nothing was judged. given, old: as in Memory; k: places."""
    return Memory(
        given=given,
        turns=torch.zeros(k, dtype=torch.float64),
        evidence=torch.zeros(2, 3, k, k, dtype=torch.float64),
        sketch=torch.empty(len(given), 0),
        stage=JUDGED,
        parted=0,
        since=0,
        moved=math.nan,
        pace=0.0,
        loss=math.inf,
        old=old,
    )


def memory_of(state: ClusterState) -> Memory:
    """The memory of a state that has one."""
    return record_of(Memory, state.memory)


def settled(state: ClusterState, memory: Memory, events: list[Event]) -> Step:
    """A model that no other is compared with needs no referee; whoever is free chooses anew."""
    if int(state.live.sum()) == 1:
        memory = replace(memory, stage=FREE)
    elif memory.stage == JUDGED and len(memory.judged(state.live)) == 1:
        memory = replace(memory, stage=HELD)
    if memory.stage == FREE:
        state = replace(state, unchanged=0, changed=state.round)
    return replace(state, memory=tensors_of(memory)), events


def merged(state: ClusterState, memory: Memory, one: Verdict) -> tuple[ClusterState, Memory]:
    """One model for two groups, at the place of the first: their average, or one's where that costs less."""
    a, b = one.pair
    mean = averages(state.theta, memory.turns, [one.pair])
    theta = {name: value.clone() for name, value in state.theta.items()}
    for name, value in theta.items():
        value[a] = {"average": mean[name][0], "first": value[a], "second": value[b]}[one.better]
    gone = torch.tensor([b])
    turns = memory.turns.clone()
    turns[a], turns[b] = turns[a] + turns[b], 0
    memory = replace(memory, given=torch.where(memory.given == b, a, memory.given), turns=turns)
    identity = torch.where(state.identity == b, a, state.identity)
    live = state.live.index_fill(0, gone, False)
    state = state if one.better == "first" else forgotten(state, torch.tensor([a]))
    return replace(state, theta=without(theta, gone), live=live, identity=identity), memory


def parted(state: ClusterState, memory: Memory, group: Tensor) -> Step:
    """Clients in new groups [m], -1 for those not heard: each begins with a copy of its clients' model."""
    before, theta = state.identity, {name: value.clone() for name, value in state.theta.items()}
    turns, live = memory.turns.clone(), state.live.clone()
    for j in sorted(set(group[group >= 0].tolist())):
        own, mine = int(before[group == j][0]), int((group == j).sum())
        turns[j] = memory.turns[own] * mine / int(((group >= 0) & (before == own)).sum())
        live[j] = True
        for name, value in theta.items():
            value[j] = state.theta[name][own]
    memory = replace(
        memory,
        given=group,
        turns=turns,
        evidence=torch.zeros_like(memory.evidence),
        stage=JUDGED,
        parted=state.round,
        since=state.round,
        moved=float("nan"),
    )
    models = int(live.sum())
    state = replace(state, theta=theta, live=live, identity=torch.where(group >= 0, group, before))
    return settled(state, memory, [{"event": "parted", "clusters": models}])


def tried(
    state: ClusterState, memory: Memory, who: Tensor, said: Replies
) -> tuple[ClusterState, Memory, list[Event]]:
    """In a trial clients who [p] chose. They are let go where that changes nothing, or more than half as much
    as in the trial before, after half as many rounds, while every model serves those best to whom it was
    given.
    """
    assert said.losses is not None
    given, live = memory.given[who], places_of(state.live).tolist()
    moved = float((said.identity != given).double().mean())
    if moved == 0 or (own_is_best(live, given, said.losses) and 2 * moved >= memory.moved):
        state = replace(state, unchanged=0, changed=state.round)
        return state, replace(memory, stage=FREE), [{"event": "free", "moved": moved}]
    identity = torch.where(memory.given >= 0, memory.given, state.identity)
    return replace(state, identity=identity), replace(memory, moved=moved), []
