"""IFCA with a founding and a referee: Algorithm 2 that does not depend on a lucky start.

1. Founding (founding.py): before round 0 the clients are put into k groups, and each group trains a copy of
   one start for some rounds.
2. The referee (referee.py): groups that one model serves as well become one, until every two need both.
3. The groups are held until the clients would choose as they were grouped, or waiting brings that no nearer.
4. From then on this is Algorithm 2, as in ifca_plain.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.identity import known_identity
from ifca.core.ledger import Wire
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.sketch import make_sketch
from ifca.core.types import ClusterState, places_of, without
from ifca.methods.averaging import average, given_state, initial_state, next_pace, with_comparison
from ifca.methods.founding import bisected, groups_of, own_is_best, to_go
from ifca.methods.groups import (
    FREE,
    HELD,
    JUDGED,
    Memory,
    Step,
    first_memory,
    memory_of,
    merged,
    parted,
    settled,
    tried,
)
from ifca.methods.ifca_plain import choose
from ifca.methods.memory import tensors_of
from ifca.methods.method import Ask, Event, Method, Problem, Round, grow
from ifca.methods.referee import added, averages, closest, compared, pairs_of, to_merge, verdicts

APART = 8  # rounds that groups train apart at least before one model for two of them is accepted
EARLY = 0.01  # of alpha: the level of each of the three looks before that


def places(recipe: Recipe, m: int) -> int:
    """Places for models: k is the most, and so is the number of clients."""
    return min(m, recipe.k)


def start(problem: Problem, restart: int) -> ClusterState:
    """A copy of one start for every group; or the models of a warm start, among which clients choose."""
    nobody, k = torch.full((problem.m,), -1), problem.models
    if problem.given is not None:
        return given_state(problem.given, nobody, k)
    drawn = problem.draw(restart, 0)
    if k == 1:
        return initial_state(drawn, nobody)
    solutions = problem.solve()
    group, heard = groups_of(problem, solutions)
    live = torch.arange(k) <= int(group.max())
    theta = {name: value[:1].expand_as(value).clone() for name, value in drawn.items()}
    memory = first_memory(group, k)
    state = initial_state(without(theta, places_of(~live)), group, live)
    state = replace(state, bytes_down=solutions.bytes_down, bytes_up=solutions.bytes_up)
    for said in heard:
        state = with_comparison(
            state, Wire.of(solutions.theta, torch.ones(2), frozenset()), solutions.answered, said
        )
    return settled(state, memory, [])[0]


def sends(recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """The model that a client is given; all models once clients are free, and when they are tried for it."""
    if not state.memory:
        return known_identity(recipe, state, who)
    memory = memory_of(state)
    if memory.stage == FREE:
        return known_identity(recipe, state, who)
    if memory.tries(state.round):
        return torch.full_like(who, -1)
    given = memory.given[who]  # of models just parted, which are copies, who was not heard keeps its own
    return torch.where(given < 0, state.identity[who], given) if memory.parted == state.round else given


def needs(recipe: Recipe, state: ClusterState) -> Needs:
    """Samples set aside until the referee has decided; losses in a trial; updates to part groups by."""
    if not state.memory:
        return Needs()
    memory = memory_of(state)
    stage = memory.stage
    gather = stage != JUDGED and not bool(state.live.all()) and to_go(state.round) <= _window(recipe)
    return Needs(
        losses=memory.tries(state.round),
        sketch=make_sketch(state.theta, recipe.seed) if gather else None,
        aside=stage == JUDGED or gather,
    )


def _window(recipe: Recipe) -> int:
    """Rounds in which everybody could be heard."""
    return math.ceil(1 / recipe.participation)


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
    if memory.stage == JUDGED:
        return _refereed(problem, after, memory, now, ask)
    events: list[Event] = []
    if memory.stage == HELD and now.replies.losses is not None:
        after, memory, events = tried(after, memory, now.who, now.replies)
    if now.replies.sketch is not None:
        return _founded_again(problem, after, memory, now, events)
    return replace(after, memory=tensors_of(memory)), events


def _founded_again(
    problem: Problem, state: ClusterState, memory: Memory, now: Round, events: list[Event]
) -> Step:
    """Where places are free, groups are parted by their clients' updates; the referee judges them anew."""
    told = now.replies.sketch
    assert told is not None
    sketch = memory.sketch if memory.sketch.numel() else told.new_full((problem.m, told.shape[1]), math.nan)
    sketch = sketch.index_copy(0, now.who, told)
    if to_go(state.round - 1) > 1:
        return replace(state, memory=tensors_of(replace(memory, sketch=sketch))), events
    memory, here = replace(memory, sketch=sketch[:, :0]), sketch.isfinite().all(1) & (state.identity >= 0)
    group = torch.where(here, state.identity, -1)
    group[here] = bisected(
        sketch[here], group[here], places_of(~state.live).tolist(), problem.keys[here.numpy()]
    )
    if torch.equal(group[here], state.identity[here]):
        return replace(state, memory=tensors_of(memory)), events
    state, more = parted(state, memory, group)
    return state, events + more


def _refereed(problem: Problem, state: ClusterState, memory: Memory, now: Round, ask: Ask) -> Step:
    """The referee looks after rounds 1, 2, 4, 8, and then whenever everybody could be heard. If every two
    groups need both, that is all; if not, after APART rounds one model serves two where it does as well.
    Looks before that are taken at a hundredth of alpha, which leaves nearly all of it to those after.
    """
    window, age = _window(problem.recipe), memory.since - memory.parted
    look = memory.since + max(window, age if age < APART else 0)
    if state.round <= look - window:
        return replace(state, memory=tensors_of(memory)), []
    alpha = problem.recipe.alpha * (EARLY if state.round - memory.parted < APART else 1 - 3 * EARLY)
    state, memory = _heard(problem, state, memory, now.who, ask)
    if state.round < look:
        return replace(state, memory=tensors_of(memory)), []
    said = memory.new(verdicts(memory.evidence, memory.judged(state.live)))
    memory = replace(memory, evidence=torch.zeros_like(memory.evidence), since=state.round)
    if all(one.needs_both(alpha) for one in said):
        return settled(
            state, replace(memory, stage=HELD), [one.as_event("kept", alpha) for one in closest(said)]
        )
    if state.round - memory.parted < APART:
        return replace(state, memory=tensors_of(memory)), []
    same = to_merge(said, alpha)
    for one in same:
        state, memory = merged(state, memory, one)
    return settled(state, memory, [one.as_event("merged", alpha) for one in same])


def _heard(
    problem: Problem, state: ClusterState, memory: Memory, who: Tensor, ask: Ask
) -> tuple[ClusterState, Memory]:
    """The evidence with what clients who [p] say of every two models."""
    live, group = memory.judged(state.live), memory.given[who]
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
        who, live = torch.nonzero(memory.given >= 0)[:, 0], memory.judged(state.live)
        state, memory = _heard(problem, state, memory, who, ask)
        said = memory.new(verdicts(memory.evidence, live))
        same = to_merge(said, alpha)
        for one in same:
            state, memory = merged(state, replace(memory, stage=JUDGED), one)
            events.append(one.as_event("merged", alpha))
        if not same:
            events += [one.as_event("kept", alpha) for one in closest(said)]
        state = settled(state, memory, [])[0]
    return state, events


def serves(state: ClusterState, losses: Tensor) -> Tensor:
    """The model with the lowest training loss; while clients are held, only where every model serves those
    best to whom it was given: else each is served by the one that it was given.
    """
    chosen, held = choose(state, losses), state.identity
    if not state.memory or memory_of(state).stage == FREE:
        return chosen
    heard = torch.where(losses.isnan().any(1), -1, held)
    if own_is_best(places_of(state.live).tolist(), heard, losses):
        return chosen
    return torch.where(held >= 0, held, chosen)


def joined(recipe: Recipe, state: ClusterState, new: int) -> ClusterState | None:
    """Clients that join choose; nothing is known of them."""
    after = grow(recipe, state, new)
    if after is None or not state.memory:
        return after
    memory, none = memory_of(state), torch.full((new,), -1)
    unheard = memory.sketch.new_full((new, memory.sketch.shape[1]), math.nan)
    memory = replace(
        memory, given=torch.cat([memory.given, none]), sketch=torch.cat([memory.sketch, unheard])
    )
    return replace(after, memory=tensors_of(memory))


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
    referee=True,
)
