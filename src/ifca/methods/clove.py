"""CLoVE: the server clusters the clients' loss vectors; clients do not choose.

In round 0, with initial = "dealt"
0. participants are dealt to the k models at random, each model to one at least    with_dealt
In every round until clustering ends
1. participants are sent all k models and send their k losses                      sends, needs
2. the server clusters the loss vectors: by k-means; of clove-auto, which does     clusters
   not know K, by Ward's tree at the K with the best silhouette                    clusters_of_unknown_number
3. clusters are matched one to one to the models that their members lose least by  matched
4. each participant trains the model of its cluster; averages by cluster           server
When no participant has changed its cluster for stable_after rounds
5. clusters stay: clients are sent their own model only                            ended
6. who is seen for the first time goes to the nearest centroid of loss vectors     nearest

A client trains the model that suits it best while the server decides. Where any participant's cluster is
another one, the round is trained once more with the models that the server decided on. In a real exchange
a client would wait for its number instead, so this counts as one turn and one model sent back.

Source: CLoVE (2026), from its public code: initial = "dealt", stable_after = 3. Deviations: both are off by
default, so that the bench compares the rule alone; in a round with a newcomer after the end all participants
judge all models, so that centroids are of the models that the newcomer judges; models of clove-auto without
clients are dropped when clustering ends, or training does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ifca.core.identity import identity
from ifca.core.random import bits
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.types import ClusterState, places_of, without
from ifca.methods.averaging import average, given_state, initial_state
from ifca.methods.dealt_start import is_dealt, with_dealt
from ifca.methods.loss_clusters import centroids, clusters, clusters_of_unknown_number, matched, nearest
from ifca.methods.memory import record_of, tensors_of
from ifca.methods.method import Ask, Event, Method, Problem, Round


@dataclass(frozen=True)
class Memory:
    """What the server remembers where clustering ends some time."""

    centroids: Tensor  # [k, k] the mean loss vector of each cluster when it last judged; NaN: it has not


def start(problem: Problem, restart: int) -> ClusterState:
    """K different models; nobody's cluster is known, but for those who are dealt one for the first round."""
    recipe, k, nobody = problem.recipe, problem.models, torch.full((problem.m,), -1)
    if problem.given is None:
        state = initial_state(problem.draw(restart, 0), nobody)
    else:
        state = given_state(problem.given, nobody, k)
    if is_dealt(recipe, state):
        state = with_dealt(problem, state, restart)
    if recipe.stable_after is None:
        return state
    none = torch.full((k, k), torch.nan, dtype=torch.float64)
    return replace(state, memory=tensors_of(Memory(none)))


def ended(recipe: Recipe, state: ClusterState) -> bool:
    """Whether clusters stay as they are: whoever took part kept its cluster for stable_after rounds."""
    return recipe.stable_after is not None and state.unchanged >= recipe.stable_after


def sends(recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """All models while there are clusters to look for; else each client's own."""
    own = state.identity[who]
    if is_dealt(recipe, state) or (ended(recipe, state) and bool((own >= 0).all())):
        return own
    return torch.full_like(who, -1)


def needs(_recipe: Recipe, _state: ClusterState) -> Needs:
    """The loss vectors."""
    return Needs(losses=True)


def server(
    problem: Problem, state: ClusterState, now: Round, ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """Cluster the losses, match, and average what each cluster's members have trained."""
    return _after(problem, state, now, ask, known=True), None


def server_auto(
    problem: Problem, state: ClusterState, now: Round, ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """The same; where clustering ends, models without clients are dropped."""
    after = _after(problem, state, now, ask, known=False)
    over = ended(problem.recipe, after) and not ended(problem.recipe, state)
    return only_used(after) if over else after, []


def _after(problem: Problem, state: ClusterState, now: Round, ask: Ask, *, known: bool) -> ClusterState:
    """The next state. known: whether k is the number of clusters, or the most."""
    losses = now.replies.losses
    if losses is None or is_dealt(problem.recipe, state):
        return average(problem, state, now)
    if ended(problem.recipe, state):
        given = state.identity[now.who]
        state = _with_centroids(state, losses, given)
        near = nearest(losses, record_of(Memory, state.memory).centroids)
        given = torch.where(given >= 0, given, near)
    else:
        order = torch.from_numpy(np.argsort(problem.keys[now.who.numpy()], kind="stable"))
        seed = int(bits(problem.recipe.seed, "clove", state.round)[0] % (2**32))
        ordered = losses[order]
        found = clusters(ordered, seed) if known else clusters_of_unknown_number(ordered)
        given = torch.empty_like(now.who)
        given[order] = matched(ordered, found)
        state = _with_centroids(state, losses, given)
    return average(problem, state, _trained(state, now, given, ask))


def _trained(state: ClusterState, now: Round, given: Tensor, ask: Ask) -> Round:
    """The round as it is when each participant has trained the model that it is given [p]."""
    if torch.equal(given, now.replies.identity):
        return now
    again = ask.turn(state, now.who, given)
    if now.replies.carried is not None and again.carried is not None:  # measured: those of both turns
        down, up = (a + b for a, b in zip(now.replies.carried, again.carried, strict=True))
        again = again._replace(carried=(down, up))
    if again.answered is not None:  # who did not answer again has trained another cluster's model
        now = now._replace(who=now.who[again.answered], known=now.known[again.answered])
    return now._replace(replies=again)


def _with_centroids(state: ClusterState, losses: Tensor, own: Tensor) -> ClusterState:
    """The state that knows the mean loss vector of each cluster. losses: [p, k]; own: [p], -1: not known."""
    if not state.memory:
        return state
    fresh = centroids(losses, own)
    heard = torch.isin(torch.arange(len(fresh)), own)[:, None]
    kept = torch.where(heard, fresh, record_of(Memory, state.memory).centroids)
    return replace(state, memory=tensors_of(Memory(kept)))


def only_used(state: ClusterState) -> ClusterState:
    """The state without the models that no client has."""
    used = torch.isin(torch.arange(len(state.live)), state.identity) & state.live
    if not bool(used.any()) or torch.equal(used, state.live):
        return state
    return replace(state, theta=without(state.theta, places_of(~used)), live=used)


def finish(_problem: Problem, state: ClusterState, _ask: Ask) -> tuple[ClusterState, list[Event]]:
    """Of clove-auto: models without clients are dropped."""
    return only_used(state), []


def serves(state: ClusterState, losses: Tensor) -> Tensor:
    """A client is served by the model that it was last given; one never seen by that of least loss, or, where
    clustering may end, by that of the nearest centroid.
    """
    near = identity(losses)
    if state.memory and bool((state.identity >= 0).any()):
        near = nearest(losses, centroids(losses, state.identity))
    return torch.where(state.identity >= 0, state.identity, near)


CLOVE = Method(
    name="clove",
    title="CLoVE's rule",
    about="CLoVE's rule: the server clusters the clients' losses under all models in every round",
    start=start,
    sends=sends,
    needs=needs,
    server=server,
    serves=serves,
)

CLOVE_AUTO = replace(
    CLOVE,
    name="clove-auto",
    title="CLoVE, K unknown",
    about="CLoVE that looks for the number of clusters, too, by the silhouette of loss vectors",
    server=server_auto,
    models=lambda recipe, m: min(m, recipe.k),
    finish=finish,
    at_most_k=True,
)
