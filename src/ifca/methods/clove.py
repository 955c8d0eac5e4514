"""CLoVE's rule: the server clusters the clients' loss vectors; clients do not choose.

In every round
1. participants are sent all k models and send their k losses                      sends, needs
2. the server clusters the loss vectors by k-means                                 clusters
3. clusters are matched one to one to the models that their members lose least by  matched
4. each participant trains the model of its cluster; averages by cluster           server

A client trains the model that suits it best while the server decides. Where any participant's cluster is
another one, the round is trained once more with the models that the server decided on. In a real exchange
a client would wait for its number instead, so this counts as one turn and one model sent back.
Clusters are looked for in every round; CLoVE's end of that (no change for three rounds) is left out.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from ifca.core.identity import identity
from ifca.core.random import bits
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.types import ClusterState
from ifca.methods.averaging import average, initial_state
from ifca.methods.method import Ask, Event, Method, Problem, Round


def start(problem: Problem, restart: int) -> ClusterState:
    """K different models; nobody's cluster is known."""
    theta = problem.draw(restart, 0) if problem.given is None else problem.given
    return initial_state(theta, torch.full((problem.m,), -1))


def sends(_recipe: Recipe, _state: ClusterState, who: Tensor) -> Tensor:
    """All models, always."""
    return torch.full_like(who, -1)


def needs(_recipe: Recipe, _state: ClusterState) -> Needs:
    """The loss vectors."""
    return Needs(losses=True)


def server(
    problem: Problem, state: ClusterState, now: Round, ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """Cluster the losses, match, and average what each cluster's members have trained."""
    losses = now.replies.losses
    assert losses is not None
    order = torch.from_numpy(np.argsort(problem.keys[now.who.numpy()], kind="stable"))
    seed = int(bits(problem.recipe.seed, "clove", state.round)[0] % (2**32))
    given = torch.empty_like(now.who)
    given[order] = matched(losses[order], clusters(losses[order], seed))
    if torch.equal(given, now.replies.identity):
        return average(problem, state, now), None
    again = ask.turn(state, now.who, given)
    if now.replies.carried is not None and again.carried is not None:  # measured: those of both turns
        down, up = (a + b for a, b in zip(now.replies.carried, again.carried, strict=True))
        again = again._replace(carried=(down, up))
    if again.answered is not None:  # who did not answer again has trained another cluster's model
        now = now._replace(who=now.who[again.answered], known=now.known[again.answered])
    return average(problem, state, now._replace(replies=again)), None


def clusters(losses: Tensor, seed: int) -> Tensor:
    """K-means on loss vectors [p, k] -> cluster numbers [p]; each its own where there are no more than k."""
    from sklearn.cluster import KMeans  # late: a federation's clients never need it
    from sklearn.exceptions import ConvergenceWarning

    p, k = losses.shape
    if p <= k:
        return torch.arange(p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different clients than k: fewer clusters
        found = KMeans(k, n_init=10, random_state=seed).fit_predict(_finite(losses).numpy())
    return torch.as_tensor(found).long()


def matched(losses: Tensor, cluster: Tensor) -> Tensor:
    """The model of each client [p]: clusters and models one to one, with the least loss in all."""
    from scipy.optimize import linear_sum_assignment

    own = torch.nn.functional.one_hot(cluster, losses.shape[1]).double()  # [p, k clusters]
    _, model = linear_sum_assignment((own.T @ _finite(losses)).numpy())
    return torch.as_tensor(model)[cluster]


def _finite(losses: Tensor) -> Tensor:
    """A loss that is no number counts as the largest that is one."""
    finite = losses[losses.isfinite()].double()
    largest = float(finite.max()) if len(finite) else 0.0
    return losses.double().nan_to_num(nan=largest, posinf=largest)


def serves(state: ClusterState, losses: Tensor) -> Tensor:
    """A client is served by the model that it was last given; one never seen by that of least loss."""
    return torch.where(state.identity >= 0, state.identity, identity(losses))


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
