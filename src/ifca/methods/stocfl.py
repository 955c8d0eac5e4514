"""StoCFL: every client is a cluster at first; clusters whose clients pull one way become one, as they come.

1. in its first turn a client trains the initial model, the same for all: its psi is that update       sends
2. it is a cluster of its own; the two clusters whose mean psi have the largest cosine become one, as long as
   that is at least stocfl_tau; the model of the larger one stays                         merged, together
3. from then on it trains its cluster's model; averages by cluster                        server: average
4. all participants train one global model besides, from which new clusters begin         server: ask.turn
5. after every round a cluster's model is pulled to the global one, by stocfl_pull        pulled

Source: Zeng et al. 2023. Deviations: k is the most clusters, so that they have places, and beyond k the most
similar become one whatever their cosine; the pull is taken once a round by the server, not in every local
step (in a round the authors' proximal term, mu = 0.05, pulls by about mu x step_size x steps); a client's psi
is its usual turn, not 20 epochs; all clusters are compared, not only a round's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ifca.core.ledger import Wire
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.types import ClusterState, Params, places_of, without
from ifca.methods.averaging import average, initial_state
from ifca.methods.directions import SMALLEST, Changes, changes_of, cosines, kept, own_numbers
from ifca.methods.fedgroup import serves
from ifca.methods.memory import record_of, tensors_of
from ifca.methods.method import Ask, Event, Method, Problem, Round
from ifca.methods.server_optimiser import forgotten

GLOBAL, INITIAL = -2, -1  # places of the global model, and of the one that clients train first


@dataclass(frozen=True)
class Memory:
    """What the server remembers beside models and clusters."""

    psi: Tensor  # [k, d] the sum of its clients' psi, for each place of a cluster


def start(problem: Problem, restart: int) -> ClusterState:
    """The initial model, and the global one, which begins with it; there are no clusters yet."""
    one = problem.draw(restart, 0) if problem.given is None else problem.given
    theta = {name: value.expand(problem.models, *value.shape[1:]).clone() for name, value in one.items()}
    live = torch.arange(problem.models) >= problem.models + GLOBAL
    like = next(iter(theta.values())).dtype
    memory = Memory(psi=torch.zeros(problem.models + GLOBAL, own_numbers(problem, theta), dtype=like))
    state = initial_state(without(theta, places_of(~live)), torch.full((problem.m,), -1), live)
    return replace(state, memory=tensors_of(memory))


def sends(_recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """The model of its cluster; to a client without a cluster the initial one."""
    return torch.where(state.identity[who] >= 0, state.identity[who], state.k + INITIAL)


def needs(_recipe: Recipe, state: ClusterState) -> Needs:
    """Single updates while there are clients without a cluster."""
    return Needs(updates=bool((state.identity < 0).any()))


def server(
    problem: Problem, state: ClusterState, now: Round, ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """Averages by cluster and of all; the pull; then new clients find their clusters."""
    rows = torch.nonzero(now.replies.identity == state.k + INITIAL)[:, 0]
    rows = rows[np.argsort(problem.keys[now.who[rows].numpy()], kind="stable")]
    pull = problem.recipe.stocfl_pull
    both, more = _with_global(problem, state, now, ask) if pull else (now, (0, 0))
    after = average(problem, state, both, apart=True)
    after = replace(after, bytes_down=after.bytes_down + more[0], bytes_up=after.bytes_up + more[1])
    after = kept(problem, state, after, torch.arange(state.k) == state.k + INITIAL)
    if pull:
        after = replace(after, theta=pulled(problem, state, after, now, pull))
    if not len(rows):
        return after, []
    return together(problem, after, now.who[rows], changes_of(problem, state, now).of(rows))


def _with_global(
    problem: Problem, state: ClusterState, now: Round, ask: Ask
) -> tuple[Round, tuple[Tensor | int, Tensor | int]]:
    """The round with what participants made of the global model; the bytes of that where they are counted."""
    again = ask.turn(state, now.who, torch.full_like(now.who, state.k + GLOBAL))
    replies = now.replies._replace(total=now.replies.total + again.total)
    if replies.carried is not None and again.carried is not None:  # measured: those of both turns
        down, up = (a + b for a, b in zip(replies.carried, again.carried, strict=True))
        return now._replace(replies=replies._replace(carried=(down, up))), (0, 0)
    wire, alone = Wire.of(state.theta, state.live, problem.shared), torch.ones(len(now.who), dtype=torch.bool)
    more = torch.zeros(2, problem.m, dtype=torch.long)
    more[0, now.who], more[1, now.who] = wire.down(alone), wire.up(alone)
    return now._replace(replies=replies), (more[0], more[1])


def pulled(problem: Problem, before: ClusterState, after: ClusterState, now: Round, pull: float) -> Params:
    """The models of clusters that trained in this round, moved to the global one that was sent."""
    trained = torch.nonzero(now.replies.total.weight.cpu()[:GLOBAL] > 0)[:, 0]
    theta = {name: value.clone() for name, value in after.theta.items()}
    for name in theta.keys() - problem.shared:
        theta[name][trained] += pull * (before.theta[name][GLOBAL] - theta[name][trained])
    return theta


def together(
    problem: Problem, state: ClusterState, who: Tensor, found: Changes
) -> tuple[ClusterState, list[Event]]:
    """Clients who [p] with their psi: clusters of their own, which become one with those like them."""
    psi = record_of(Memory, state.memory).psi
    old, most = places_of(state.live)[:GLOBAL], len(psi)
    across = found.along(psi[old])  # [p, clusters]
    rows = psi[old].double() @ psi[old].double().T
    gram = torch.cat([torch.cat([rows, across.T], 1), torch.cat([across, found.gram()], 1)])
    label, said = merged(gram, problem.recipe.stocfl_tau, most)
    events = [{"event": "merged", **_numbers(old, pair)} for pair in said if pair[1] < len(old)]
    return _settled(state, psi, who, found, label), events


def _numbers(old: Tensor, pair: tuple[int, int, float]) -> Event:
    """Two clusters that became one, as an event tells it."""
    return {"cluster": int(old[pair[0]]), "other": int(old[pair[1]]), "cosine": pair[2]}


def merged(gram: Tensor, tau: float, most: int) -> tuple[Tensor, list[tuple[int, int, float]]]:
    """The two of largest cosine become one while it is at least tau, or while there are more than so many.

    gram: [n, n] products of the sums of psi. Returns for each its first in the same cluster [n]; the merges.
    """
    table, label, said = gram.clone(), torch.arange(len(gram)), list[tuple[int, int, float]]()
    cosine = cosines(table).fill_diagonal_(-math.inf)
    while len(gram) - len(said) > 1:
        a, b = sorted(divmod(int(cosine.argmax()), len(gram)))
        if cosine[a, b] < tau and len(gram) - len(said) <= most:
            break
        said.append((a, b, float(cosine[a, b])))
        label[label == b] = a
        table[a] += table[b]
        table[:, a] += table[:, b]
        length = table.diagonal().clamp(min=0).sqrt().clamp(min=SMALLEST)
        here = cosine[a] > -math.inf
        cosine[a] = torch.where(here, table[a] / length / length[a], -math.inf)
        cosine[:, a] = cosine[a]
        cosine[b], cosine[:, b] = -math.inf, -math.inf
    return label, said


def _settled(state: ClusterState, psi: Tensor, who: Tensor, found: Changes, label: Tensor) -> ClusterState:
    """The state with clusters as labelled: first those that were there, in order, then clients who. [n]"""
    old, first = places_of(state.live)[:GLOBAL], torch.tensor(sorted(set(label.tolist())))
    stay = old[first[first < len(old)]]  # a cluster that was there keeps its place, or its first one's
    free = [j for j in range(len(psi)) if j not in stay.tolist()]
    at = torch.cat(
        [stay, torch.tensor(free, dtype=torch.long)[: len(first) - len(stay)]]
    )  # [clusters] their places
    inside = (label == first[:, None]).double()  # [clusters, n]
    sums = inside[:, : len(old)] @ psi[old].double() + found.mixed(inside[:, len(old) :])
    size = (state.identity == old[:, None]).sum(1)  # clients of those that were there
    source = torch.full_like(at, state.k + GLOBAL)  # its model: the largest one's, else the global
    for c in range(len(stay)):
        source[c] = old[torch.where(inside[c, : len(old)] > 0, size, -1).argmax()]
    live, place, now = state.live.clone(), torch.full((state.k,), -1), at[torch.searchsorted(first, label)]
    live[: len(psi)] = False
    live[at], place[old] = True, now[: len(old)]
    theta = without(state.theta, torch.arange(len(psi)))
    for name, value in theta.items():
        value[at] = state.theta[name][source]
    identity = torch.where(state.identity >= 0, place[state.identity], -1)
    identity[who] = now[len(old) :]
    memory = Memory(psi=torch.zeros_like(psi).index_copy(0, at, sums.to(psi)))
    state = forgotten(state, at[source != at])
    return replace(state, theta=theta, live=live, identity=identity, memory=tensors_of(memory))


def finish(_problem: Problem, state: ClusterState, _ask: Ask) -> tuple[ClusterState, list[Event]]:
    """Neither the initial nor the global model serves anybody; the global one does if training has gone back
    to where there are no clusters.
    """
    found = bool(state.live[:GLOBAL].any())
    last = torch.tensor([state.k + GLOBAL, state.k + INITIAL] if found else [state.k + INITIAL])
    return replace(state, theta=without(state.theta, last), live=state.live.index_fill(0, last, False)), []


STOCFL = Method(
    name="stocfl",
    title="StoCFL",
    about="StoCFL: clients whose first updates are alike become one cluster, as they come",
    start=start,
    models=lambda recipe, m: min(m, recipe.k) - GLOBAL,
    sends=sends,
    needs=needs,
    server=server,
    serves=serves,
    finish=finish,
    at_most_k=True,
    one_start=True,
)
