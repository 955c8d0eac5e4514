"""IFCA with a founding and a referee: Algorithm 2 that does not depend on a lucky start.

1. Founding (founding.py): before round 0 the clients are put into k groups, and each group trains a copy of
   one start for some rounds.
2. The referee (referee.py): groups that one model serves as well become one, until every two need both.
3. The groups are held until the clients would choose as they were grouped, or waiting brings that no nearer.
4. From then on this is Algorithm 2, as in ifca_plain.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ifca.core.identity import known_identity
from ifca.core.ledger import Wire
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.types import ClusterState, model_count, places_of, without
from ifca.methods.averaging import average, initial_state, next_pace, with_comparison
from ifca.methods.founding import founded, is_trial, own_is_best
from ifca.methods.ifca_plain import choose
from ifca.methods.memory import record_of, tensors_of
from ifca.methods.method import Ask, Event, Method, Problem, Round, grow
from ifca.methods.referee import Verdict, added, averages, compared, pairs_of, to_merge, verdicts

APART = 8  # rounds that groups train apart at least before one model for two of them is accepted
EARLY = 0.01  # of alpha: the level of each of the three looks before that
JUDGED, HELD, FREE = range(3)  # the stages


@dataclass(frozen=True)
class Memory:
    """What the server remembers beside models and identities."""

    given: Tensor  # [m] the place of the model that each client is given; -1: it chooses
    turns: Tensor  # [k] clients' turns that made a model
    evidence: Tensor  # [2, 3, k, k] what the referee was told of every two models
    stage: int
    since: int  # the round from which on the referee is told
    moved: float  # share of clients that chose another model when they last could; NaN: they could not yet
    pace: float  # option I: the share of its step that a round takes while there are fewer models than k
    loss: float  # the participants' mean loss in the last round


def memory_of(state: ClusterState) -> Memory:
    """The memory of a state that has one."""
    return record_of(Memory, state.memory)


def places(recipe: Recipe, m: int) -> int:
    """Places for models: k is the most, and so is the number of clients."""
    return min(m, recipe.k)


def start(problem: Problem, restart: int) -> ClusterState:
    """A copy of one start for every group; or the models of a warm start, among which clients choose."""
    nobody, k = torch.full((problem.m,), -1), problem.models
    if problem.given is not None:
        count = model_count(problem.given)
        zeros = {name: value.new_zeros(k, *value.shape[1:]) for name, value in problem.given.items()}
        theta = {name: torch.cat([v, zeros[name][count:]]) for name, v in problem.given.items()}
        return initial_state(theta, nobody, torch.arange(k) < count)
    drawn = problem.draw(restart, 0)
    if k == 1:
        return initial_state(drawn, nobody)
    solutions = problem.solve()
    group, said = founded(solutions, problem.compare, k, problem.keys, problem.recipe.alpha)
    live = torch.arange(k) <= int(group.max())
    theta = {name: value[:1].expand_as(value).clone() for name, value in drawn.items()}
    memory = Memory(
        given=group,
        turns=torch.zeros(k, dtype=torch.float64),
        evidence=torch.zeros(2, 3, k, k, dtype=torch.float64),
        stage=JUDGED,
        since=0,
        moved=math.nan,
        pace=0.0,
        loss=math.inf,
    )
    state = initial_state(without(theta, places_of(~live)), group, live)
    state = replace(state, bytes_down=solutions.bytes_down, bytes_up=solutions.bytes_up)
    if said is not None:
        state = with_comparison(
            state, Wire.of(solutions.theta, torch.ones(2), frozenset()), solutions.answered, said
        )
    return _settled(state, memory, [])[0]


def sends(recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """The model that a client is given; all models once clients are free, and when they are tried for it."""
    if not state.memory:
        return known_identity(recipe, state, who)
    memory = memory_of(state)
    if memory.stage == FREE:
        return known_identity(recipe, state, who)
    if memory.stage == HELD and is_trial(state.round):
        return torch.full_like(who, -1)
    return memory.given[who]


def needs(_recipe: Recipe, state: ClusterState) -> Needs:
    """Samples set aside until the referee has decided; losses in a trial."""
    if not state.memory:
        return Needs()
    stage = memory_of(state).stage
    return Needs(losses=stage == HELD and is_trial(state.round), aside=stage == JUDGED)


def server(
    problem: Problem, state: ClusterState, now: Round, ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """The averages; then what the founding, the referee or a trial says."""
    if not state.memory:
        return average(problem, state, now), None
    memory = memory_of(state)
    pace, loss = next_pace(
        memory.pace, memory.loss, now, min(1.0, float(state.live.sum()) / problem.recipe.k)
    )
    memory = replace(memory, pace=pace, loss=loss)
    after = average(problem, state, now, pace=memory.pace)
    given, here = memory.given.clone(), memory.given[now.who]
    given[now.who] = torch.where(here < 0, now.replies.identity, here)
    memory = replace(memory, given=given, turns=memory.turns + now.replies.total.weight.cpu())
    if memory.stage == FREE:
        return replace(after, memory=tensors_of(memory)), []
    return (_refereed if memory.stage == JUDGED else _tried)(problem, after, memory, now, ask)


Step = tuple[ClusterState, list[Event]]


def _refereed(problem: Problem, state: ClusterState, memory: Memory, now: Round, ask: Ask) -> Step:
    """The referee looks after rounds 1, 2, 4, 8, and then whenever everybody could be heard. If every two
    groups need both, that is all; if not, after APART rounds one model serves two where it does as well.
    Looks before that are taken at a hundredth of alpha, which leaves nearly all of it to those after.
    """
    window = math.ceil(1 / problem.recipe.participation)
    look = memory.since + max(window, memory.since if memory.since < APART else 0)
    if state.round <= look - window:
        return replace(state, memory=tensors_of(memory)), []
    alpha = problem.recipe.alpha * (EARLY if state.round < APART else 1 - 3 * EARLY)
    live = places_of(state.live).tolist()
    state, memory = _heard(problem, state, memory, now.who, ask)
    if state.round < look:
        return replace(state, memory=tensors_of(memory)), []
    said = verdicts(memory.evidence, live)
    memory = replace(memory, evidence=torch.zeros_like(memory.evidence), since=state.round)
    if all(one.needs_both(alpha) for one in said):
        closest = max(said, key=lambda one: (one.p, -one.t))
        return _settled(state, replace(memory, stage=HELD), [closest.as_event("kept", alpha)])
    if state.round < APART:
        return replace(state, memory=tensors_of(memory)), []
    merged = to_merge(said, alpha)
    for one in merged:
        state, memory = _merged(state, memory, one)
    return _settled(state, memory, [one.as_event("merged", alpha) for one in merged])


def _heard(
    problem: Problem, state: ClusterState, memory: Memory, who: Tensor, ask: Ask
) -> tuple[ClusterState, Memory]:
    """The evidence with what clients who [p] say of every two models."""
    live, group = places_of(state.live).tolist(), memory.given[who]
    both = averages(state.theta, memory.turns, pairs_of(live))
    models = {name: torch.cat([value[live], both[name]]) for name, value in state.theta.items()}
    found = ask.compare(models, who, *compared(live, group))
    sent = Wire.of(state.theta, torch.ones(2 * len(live) - 1), problem.shared)
    evidence = added(memory.evidence, live, group, found)
    return with_comparison(state, sent, who, found), replace(memory, evidence=evidence)


def finish(problem: Problem, state: ClusterState, ask: Ask) -> Step:
    """What the referee had not decided when the rounds ended is decided now, and everybody is heard."""
    events, alpha = list[Event](), problem.recipe.alpha * (1 - 3 * EARLY)
    while state.memory and (memory := memory_of(state)).stage == JUDGED:
        memory = replace(memory, evidence=torch.zeros_like(memory.evidence), stage=HELD)
        who, live = torch.nonzero(memory.given >= 0)[:, 0], places_of(state.live).tolist()
        state, memory = _heard(problem, state, memory, who, ask)
        for one in to_merge(verdicts(memory.evidence, live), alpha):
            state, memory = _merged(state, replace(memory, stage=JUDGED), one)
            events.append(one.as_event("merged", alpha))
        state = _settled(state, memory, [])[0]
    return state, events


def _merged(state: ClusterState, memory: Memory, one: Verdict) -> tuple[ClusterState, Memory]:
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
    return replace(state, theta=without(theta, gone), live=live, identity=identity), memory


def _tried(_problem: Problem, state: ClusterState, memory: Memory, now: Round, _ask: Ask) -> Step:
    """In a trial clients chose. They are let go where that changes nothing, or no less than in the trial
    before while every model serves those best to whom it was given.
    """
    if now.replies.losses is None:  # no trial
        return replace(state, memory=tensors_of(memory)), []
    given, live = memory.given[now.who], places_of(state.live).tolist()
    moved = float((now.replies.identity != given).double().mean())
    if moved == 0 or (own_is_best(live, given, now.replies.losses) and moved >= memory.moved):
        return _settled(state, replace(memory, stage=FREE), [{"event": "free", "moved": moved}])
    identity = torch.where(memory.given >= 0, memory.given, state.identity)
    return replace(state, identity=identity, memory=tensors_of(replace(memory, moved=moved))), []


def _settled(state: ClusterState, memory: Memory, events: list[Event]) -> Step:
    """One model needs no referee; whoever is free chooses anew."""
    if int(state.live.sum()) == 1:
        memory = replace(memory, stage=FREE)
    if memory.stage == FREE:
        state = replace(state, unchanged=0, changed=state.round)
    return replace(state, memory=tensors_of(memory)), events


def serves(state: ClusterState, losses: Tensor) -> Tensor:
    """The model that a client is given while clients are held; else the one with its lowest training loss."""
    chosen = choose(state, losses)
    if not state.memory or memory_of(state).stage == FREE:
        return chosen
    return torch.where(state.identity >= 0, state.identity, chosen)


def joined(recipe: Recipe, state: ClusterState, new: int) -> ClusterState | None:
    """Clients that join choose; nothing is known of them."""
    after = grow(recipe, state, new)
    if after is None or not state.memory:
        return after
    memory, none = memory_of(state), torch.full((new,), -1)
    return replace(after, memory=tensors_of(replace(memory, given=torch.cat([memory.given, none]))))


IFCA = Method(
    name="ifca",
    title="IFCA",
    about="IFCA: one model per cluster, clusters found before training and confirmed by a referee",
    start=start,
    models=places,
    sends=sends,
    needs=needs,
    server=server,
    serves=serves,
    finish=finish,
    joined=joined,
    chooses=True,
    at_most_k=True,
)
