"""SR-FCA: clusters from what clients lose under each other's models, refined twice. k is the most.

Round 0, which everybody takes part in:
1. every client trains a model of its own, erm_rounds rounds from one start         trained_alone
2. every client says what it loses under each of these models, and                  _one_shot
   d_ij = (f_i(theta_j) + f_j(theta_i)) / 2                                          distances
3. clients with d_ij <= lambda are neighbours                                        limit_of
4. the first client in a random order and its neighbours are a cluster, and so on    pivots
   of those who are left; clusters of one client are given up                        kept_groups
Every round after that:
5. each cluster trains its model; the server takes trimmed means                     server
REFINE, after erm_rounds and 2 erm_rounds such rounds:
6. every client goes to the cluster c with the least (f_i(theta_c) + f_c(theta_i)) / 2,
   f_c the mean loss of the cluster's other clients, theta_i the model of step 1     to_clusters
7. clusters with d <= lambda, of their models, become one                            united

Source: SR-FCA (Vardhan, Ghosh, Mazumdar; 2022), settings from its public code. lambda is sr_lambda; where it
is not given, the value that parts all d_ij in two with the least variance within the two parts: adding to
all losses or scaling them changes no decision. Deviations: at most k clusters (of more the largest), a
client whose cluster is given up goes to the nearest one at once; both REFINEs are at fixed rounds, and
training goes on after them; united clusters begin with the mean of their models, by clients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.identity import identity, one_hot
from ifca.core.ledger import LOSS_BYTES, Wire
from ifca.core.random import bits
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.types import ClusterState, places_of, without
from ifca.methods.aggregation import aggregated
from ifca.methods.averaging import average, initial_state
from ifca.methods.cross_losses import (
    between_clusters,
    distances,
    kept_groups,
    limit_of,
    pivots,
    to_clusters,
)
from ifca.methods.memory import record_of, tensors_of
from ifca.methods.method import Ask, Event, Method, Problem, Round, grow
from ifca.methods.own_models import RULE, spent, trained_alone, trimmed_models, turn_with
from ifca.methods.server_optimiser import forgotten

REFINES = 2


@dataclass(frozen=True)
class Memory:
    """What the server remembers beside models and clusters."""

    losses: Tensor  # [m, m] f_i(theta_j) of the clients' own models, NaN: not heard
    limit: float  # lambda
    refined: int  # REFINEs done


def start(problem: Problem, restart: int) -> ClusterState:
    """One start for all, at the first place; the others are free."""
    if problem.recipe.resample:
        raise InvalidInput("resample: not for sr-fca, whose clients train alone on all of their data first")
    drawn = problem.draw(restart, 0) if problem.given is None else problem.given
    theta = {n: v[:1].expand(problem.models, *v.shape[1:]).clone() for n, v in drawn.items()}
    live = torch.arange(problem.models) == 0
    none = torch.full((problem.m, problem.m), torch.nan, dtype=torch.float64)
    memory = tensors_of(Memory(none, math.nan, 0))
    state = initial_state(without(theta, places_of(~live)), torch.full((problem.m,), -1), live)
    return replace(state, memory=memory)


def takes_part(_recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """Everybody at first, then those who were drawn."""
    return torch.arange(len(state.identity)) if state.round == 0 else who


def sends(_recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """The one start; then the model of the client's cluster. Who has none yet chooses."""
    return torch.zeros_like(who) if state.round == 0 else state.identity[who]


def needs(recipe: Recipe, state: ClusterState) -> Needs:
    """Single updates, which own models and trimmed means are made of."""
    return Needs(updates=state.round == 0 or recipe.aggregation == "mean")


def server(
    problem: Problem, state: ClusterState, now: Round, ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """Clusters first; then trimmed means (or the aggregation that the recipe names), and REFINE in time."""
    if state.round == 0:
        return _one_shot(problem, state, now, ask), None
    updates = now.replies.updates
    if updates is not None:
        own, weight = now.replies.identity, torch.ones(len(now.who), dtype=torch.float64)
        total = aggregated(RULE, state.theta, updates, own, weight, problem.shared)
        now = now._replace(replies=now.replies._replace(total=total))
    after, memory = average(problem, state, now, apart=True), record_of(Memory, state.memory)
    if memory.refined < REFINES and after.round > problem.recipe.erm_rounds * (memory.refined + 1):
        after = _refined(problem, after, memory, ask)
    return after, None


def _one_shot(problem: Problem, state: ClusterState, now: Round, ask: Ask) -> ClusterState:
    """Steps 1 to 4."""
    recipe, who, p = problem.recipe, now.who, len(now.who)
    own, replies = trained_alone(problem, state, now, ask)
    judged = turn_with(ask, state, own, recipe.erm_rounds, who, torch.full((p,), -1), Needs(losses=True))
    assert judged.losses is not None
    heard = who if judged.answered is None else who[judged.answered]
    losses = record_of(Memory, state.memory).losses.clone()
    losses[heard[:, None], who] = judged.losses.double()
    near = distances(losses)
    limit = limit_of(near) if recipe.sr_lambda is None else recipe.sr_lambda
    order = np.argsort(bits(recipe.seed, "sr-fca-pivots", problem.keys), kind="stable")
    group = kept_groups(pivots(near <= limit, order), near, problem.models)
    group = torch.where(near.diagonal().isnan(), -1, group)  # who was not heard is in none
    live = torch.isin(torch.arange(problem.models), group)
    theta = without(trimmed_models(problem, own, group[who]), places_of(~live))
    one = Wire.of(own, torch.ones(p), frozenset()).clustered
    down, up = spent(state, who, [*replies, judged], down=(1 + p) * one, up=one + p * LOSS_BYTES)
    memory = tensors_of(Memory(losses, limit, 0))
    after = replace(state, theta=theta, live=live, identity=group, round=1, memory=memory)
    return replace(after, bytes_down=down, bytes_up=up)


def _refined(problem: Problem, state: ClusterState, memory: Memory, ask: Ask) -> ClusterState:
    """Steps 6 and 7. Everybody judges the models; who does not answer stays where it is."""
    everybody = torch.arange(problem.m)
    judged = ask.turn(state, everybody, torch.full_like(everybody, -1), Needs(losses=True))
    assert judged.losses is not None
    heard = everybody if judged.answered is None else everybody[judged.answered]
    losses = torch.full((problem.m, problem.models), torch.nan, dtype=torch.float64)
    losses[heard] = judged.losses.double()
    own = state.identity.clone()
    own[heard] = identity(to_clusters(losses, memory.losses, state.identity))[heard]
    wire = Wire.of(state.theta, state.live, problem.shared)
    sent = int(wire.down(torch.tensor(False)))
    down, up = spent(state, heard, [judged], down=sent, up=wire.k * LOSS_BYTES)
    state = united(state, own, between_clusters(losses, own) <= memory.limit)
    memory = replace(memory, refined=memory.refined + 1)
    return replace(state, memory=tensors_of(memory), bytes_down=down, bytes_up=up)


def united(state: ClusterState, own: Tensor, neighbours: Tensor) -> ClusterState:
    """Clusters that are neighbours [k, k] become one, at the place of the first; empty ones go."""
    k = len(state.live)
    size = one_hot(own, k).sum(0).double()
    group = pivots(neighbours, np.arange(k))  # of each place
    first = torch.tensor([int(places_of(group == g)[0]) for g in group.tolist()])
    share = one_hot(first, k).double().T * size  # [k, k] row c: who goes into c
    share = share / share.sum(1, keepdim=True).clamp(min=1)
    live = (size > 0) & (first == torch.arange(k))
    theta = {
        name: torch.tensordot(share.to(value.device), value.double(), dims=1).to(value.dtype)
        for name, value in state.theta.items()
    }
    return replace(
        forgotten(state, places_of((share > 0).sum(1) > 1)),
        theta=without(theta, places_of(~live)),
        live=live,
        identity=torch.where(own >= 0, first[own.clamp(min=0)], -1),
    )


def serves(state: ClusterState, losses: Tensor) -> Tensor:
    """The model of the client's cluster; who has none is served by that of least loss."""
    return torch.where(state.identity >= 0, state.identity, identity(losses))


def joined(recipe: Recipe, state: ClusterState, new: int) -> ClusterState | None:
    """Clients that join choose; nobody has judged a model of theirs."""
    after, memory = grow(recipe, state, new), record_of(Memory, state.memory)
    if after is None:
        return None
    losses = torch.nn.functional.pad(memory.losses, (0, new, 0, new), value=torch.nan)
    return replace(after, memory=tensors_of(replace(memory, losses=losses)))


SR_FCA = Method(
    name="sr-fca",
    title="SR-FCA",
    about="SR-FCA: clusters from what clients lose under each other's models, refined twice",
    start=start,
    models=lambda recipe, m: min(m, recipe.k),
    takes_part=takes_part,
    sends=sends,
    needs=needs,
    server=server,
    serves=serves,
    joined=joined,
    at_most_k=True,
)
