"""FedGroup: groups are found once, by the directions of the clients' first updates, and stay.

1. group cold start: at most 20 k clients train the initial model                        takes_part, sends
2. EDC: cosines of their updates with the k main directions of all of them, k-means      edc
   or MADC: mean difference of two clients' cosines with all others, complete linkage    madc
3. a group's model is the mean of its members' models, its direction that of their updates       founded
4. client cold start: everybody else trains the initial model in its first turn, and joins the group whose
   direction is most like its own                                                        placed
5. from then on groups are federations of their own                                      server: average
6. inter-group step, by fedgroup_step: models move a little to each other                drawn_together

Source: Duan et al. 2021 (FedGroup, FlexCFL). Deviations: a cold start is a client's usual turn (local_steps
or local_epochs), not 50 mini-batches, and takes its first round; the main directions follow from the products
of every two updates, so they are exact; nobody moves to another group (FlexCFL's migration is left out).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ifca.core.identity import identity
from ifca.core.random import UInts, bits
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.types import ClusterState, Params, places_of, without
from ifca.methods.averaging import average, initial_state
from ifca.methods.directions import (
    SMALLEST,
    Changes,
    changes_of,
    cosines,
    kept,
    own_names,
    own_numbers,
    own_part,
    starts,
)
from ifca.methods.founding import numbered
from ifca.methods.memory import record_of, tensors_of
from ifca.methods.method import Ask, Event, Method, Problem, Round

PER_GROUP = 20  # clients of the group cold start, for each group


@dataclass(frozen=True)
class Groups:
    """What the server remembers beside models and groups. The initial model is at the last place."""

    first: Tensor  # [s] the clients of the group cold start
    ways: Tensor  # [groups, d] the direction of each group; none before they are found


def groups_of(state: ClusterState) -> Groups:
    """The memory of a state."""
    return record_of(Groups, state.memory)


def start(problem: Problem, restart: int) -> ClusterState:
    """The initial model, and a draw of those who train it first."""
    one = problem.draw(restart, 0) if problem.given is None else problem.given
    theta = {name: value.expand(problem.models, *value.shape[1:]).clone() for name, value in one.items()}
    live = torch.arange(problem.models) == problem.models - 1
    draw = bits(problem.recipe.seed, "fedgroup", restart, problem.keys)
    drawn = np.sort(np.argsort(draw, kind="stable")[: PER_GROUP * problem.recipe.k])
    ways = torch.zeros(0, own_numbers(problem, theta), dtype=next(iter(theta.values())).dtype)
    memory = Groups(first=torch.from_numpy(drawn), ways=ways)
    state = initial_state(without(theta, places_of(~live)), torch.full((problem.m,), -1), live)
    return replace(state, memory=tensors_of(memory))


def takes_part(_recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """In the first round those of the group cold start."""
    memory = groups_of(state)
    return who if len(memory.ways) else memory.first


def sends(_recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """The model of its group; the initial one to a client without a group."""
    return torch.where(state.identity[who] >= 0, state.identity[who], state.k - 1)


def needs(_recipe: Recipe, state: ClusterState) -> Needs:
    """Single updates while clients have to be put into groups."""
    return Needs(updates=bool((state.identity < 0).any()))


def server(
    problem: Problem, state: ClusterState, now: Round, _ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """The averages by group; clients that trained the initial model are put into groups."""
    initial, memory = torch.arange(state.k) == state.k - 1, groups_of(state)
    after = kept(problem, state, average(problem, state, now, apart=True), initial)
    if problem.recipe.fedgroup_step:
        after = replace(after, theta=drawn_together(problem, after, problem.recipe.fedgroup_step))
    rows = torch.nonzero(now.replies.identity == state.k - 1)[:, 0]
    if not len(rows):
        return after, []
    rows = rows[np.argsort(problem.keys[now.who[rows].numpy()], kind="stable")]
    found, who, place = changes_of(problem, state, now).of(rows), now.who[rows], after.identity.clone()
    if len(memory.ways):
        place[who] = placed(memory.ways, found)
        return replace(after, identity=place), []
    place[who] = founded(problem, found, problem.keys[who.numpy()])
    share = torch.nn.functional.one_hot(place[who]).double().T
    whole = replace(found, names=frozenset(after.theta) - problem.shared)  # running statistics, too
    moved = whole.mixed(share / share.sum(1, keepdim=True))
    live = initial | (torch.arange(state.k) < len(moved))
    theta = begun(problem, after, moved)
    memory = replace(memory, ways=own_part(problem, theta, moved).to(memory.ways))
    return replace(after, identity=place, theta=theta, live=live, memory=tensors_of(memory)), []


def founded(problem: Problem, found: Changes, keys: UInts) -> Tensor:
    """Groups of those whose first updates are found, numbered from 0: [p]."""
    recipe, gram = problem.recipe, found.gram()
    if len(keys) <= recipe.k:
        return numbered(torch.arange(len(keys)), keys)
    seed = int(bits(recipe.seed, "fedgroup-k-means")[0] % (2**32))
    label = madc(gram, recipe.k) if recipe.fedgroup_distance == "madc" else edc(gram, recipe.k, seed)
    return numbered(label, keys)


def edc(gram: Tensor, k: int, seed: int) -> Tensor:
    """K-means on the cosines of updates with their k main directions: groups [p].

    The rows of D = U S V' are the updates. Their products with the directions V are U S, and U and S follow
    from D D', so the directions themselves are not needed. gram: D D' [p, p].
    """
    from sklearn.cluster import KMeans  # late: a federation's clients never need it
    from sklearn.exceptions import ConvergenceWarning

    size, way = torch.linalg.eigh(gram)  # rising
    along = way[:, -k:] * size[-k:].clamp(min=0).sqrt()  # [p, k]
    points = along / gram.diagonal().clamp(min=0).sqrt().clamp(min=SMALLEST)[:, None]
    points = points.round(decimals=6)  # equal clients stay equal
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different clients than k: fewer groups
        found = KMeans(k, n_init=10, max_iter=20, random_state=seed).fit_predict(points.numpy())
    return torch.as_tensor(found).long()


def madc(gram: Tensor, k: int) -> Tensor:
    """Complete linkage on the mean difference of two clients' cosines with all others: groups [p]."""
    from sklearn.cluster import AgglomerativeClustering

    tree = AgglomerativeClustering(k, metric="precomputed", linkage="complete")
    return torch.as_tensor(tree.fit_predict(differences(cosines(gram)).numpy())).long()


def differences(cosine: Tensor) -> Tensor:
    """MADC: M_ij = mean over z, neither i nor j, of |cosine_iz - cosine_jz|. [p, p]"""
    own, rows = cosine.diagonal(), []
    for i, mine in enumerate(cosine):
        apart = (mine - cosine).abs().sum(1)  # over all z, so less those of z = i and z = j
        rows.append(apart - (own[i] - cosine[:, i]).abs() - (mine - own).abs())
    table: Tensor = torch.stack(rows).clamp(min=0).fill_diagonal_(0)
    return table / max(1, len(cosine) - 2)


def placed(ways: Tensor, found: Changes) -> Tensor:
    """The group of largest cosine with each client's update: [p]."""
    length = ways.double().square().sum(1).sqrt().clamp(min=SMALLEST)
    return (found.along(ways) / length).argmax(1)


def begun(problem: Problem, state: ClusterState, moved: Tensor) -> Params:
    """Models of new groups: the initial one, moved by the mean update of its members. moved: [groups, .]."""
    theta = {name: value.clone() for name, value in state.theta.items()}
    start_of = starts(theta, frozenset(theta) - problem.shared)
    for name, value in theta.items():
        value[: len(moved)] = value[-1]
        if name in start_of:
            by = moved[:, start_of[name] : start_of[name] + value[0].numel()].to(value.device)
            value[: len(moved)] = (value[-1].double() + by.reshape(-1, *value.shape[1:])).to(value.dtype)
    return theta


def drawn_together(problem: Problem, state: ClusterState, step: float) -> Params:
    """theta_g becomes the mean of itself and of all others, which weigh step / ||theta_l||.

    Running statistics of batch norm are no part of it: a group's are of its own data.
    """
    group = places_of(state.live)[:-1]
    own = {name: state.theta[name][group].double() for name in sorted(own_names(problem, state.theta))}
    square = sum((v.flatten(1).square().sum(1).cpu() for v in own.values()), torch.zeros(len(group)).double())
    weight = (step / square.sqrt().clamp(min=SMALLEST)).expand(len(group), -1).clone().fill_diagonal_(1)
    weight = weight / weight.sum(1, keepdim=True)  # [groups, groups]
    theta = {name: value.clone() for name, value in state.theta.items()}
    for name, value in own.items():
        theta[name][group] = torch.tensordot(weight.to(value), value, dims=1).to(theta[name].dtype)
    return theta


def finish(_problem: Problem, state: ClusterState, _ask: Ask) -> tuple[ClusterState, list[Event]]:
    """The initial model serves nobody, unless training has gone back to where there are no groups."""
    last = torch.tensor([state.k - 1])
    if not bool(state.live[:-1].any()):
        return state, []
    return replace(state, theta=without(state.theta, last), live=state.live.index_fill(0, last, False)), []


def serves(state: ClusterState, losses: Tensor) -> Tensor:
    """A client is served by the model of its group; one without a group by that of least loss."""
    return torch.where(state.identity >= 0, state.identity, identity(losses))


FEDGROUP = Method(
    name="fedgroup",
    title="FedGroup",
    about="FedGroup: clients in groups by the directions of their first updates",
    start=start,
    models=lambda recipe, _m: recipe.k + 1,
    takes_part=takes_part,
    sends=sends,
    needs=needs,
    server=server,
    serves=serves,
    finish=finish,
    one_start=True,
)
