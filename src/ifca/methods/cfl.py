"""CFL: one model for all. A cluster whose model rests while its clients still pull at it is split in two.

1. one cluster with everybody, one model                                                start
2. in every round a client trains its cluster's model; the cluster takes their mean     server: average
3. a: how far the cluster's model moved; b: the length of the longest of its clients' updates
4. a split is tried where a < eps1, b > eps2, and more than two clients took part       limits, resting
5. cosines of every two updates; single linkage until two parts are left                bipartition
6. alpha, the largest cosine across; split if sqrt((1 - alpha) / 2) > cfl_gamma          parted
7. both parts go on from their parent's model; the parent stays in the tree as it is    split
8. who took no part when its cluster was split trains the parent's model once more, and goes to the part whose
   updates were more like its own, one level of the tree in a turn                      walked
9. in the end a client is served by the best model, by its training loss, on its way from the root      serves

Source: Sattler, Mueller and Samek 2020. By default the limits follow from the run itself: eps1 is a tenth of
the largest a seen, eps2 six times eps1 (as in FedDrift's CFL). cfl_thresholds gives fixed ones; the authors'
are 0.4 and 1.6. Deviations: single linkage, as in the paper, not the complete linkage of the authors'
notebook; k is the most clusters; single updates are asked for only once a cluster's model rests, so a split
comes a round later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ifca.core.identity import identity
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.types import ClusterState, places_of, without
from ifca.methods.averaging import average, initial_state
from ifca.methods.directions import SMALLEST, Changes, changes_of, cosines, kept, own_names, own_numbers
from ifca.methods.memory import record_of, tensors_of
from ifca.methods.method import Ask, Event, Method, Problem, Round, widened


@dataclass(frozen=True)
class Tree:
    """Clusters as they were split: what the server remembers."""

    parent: Tensor  # [places] the cluster that each was split from; -1: none
    ways: Tensor  # [clusters - 1, d] of all but the root: mean direction of its clients when it was made
    moved: Tensor  # [places] a: how far each model moved in its last round; infinite: it has not yet
    largest: float  # the largest a of all rounds and clusters

    @property
    def inner(self) -> Tensor:
        """Which clusters were split: [places]."""
        found = torch.zeros(len(self.parent), dtype=torch.bool)
        found[self.parent[self.parent >= 0]] = True
        return found


def tree_of(state: ClusterState) -> Tree:
    """The tree of a state."""
    return record_of(Tree, state.memory)


def places(recipe: Recipe, m: int) -> int:
    """K clusters, and those that they were split from."""
    return 2 * min(m, recipe.k) - 1


def start(problem: Problem, restart: int) -> ClusterState:
    """Everybody is in cluster 0."""
    theta = problem.draw(restart, 0) if problem.given is None else problem.given
    count = problem.models
    theta = {name: v.expand(count, *v.shape[1:]).clone() for name, v in theta.items()}
    live = torch.arange(count) == 0
    tree = Tree(
        parent=torch.full((count,), -1),
        ways=torch.zeros(0, own_numbers(problem, theta), dtype=next(iter(theta.values())).dtype),
        moved=torch.full((count,), math.inf, dtype=torch.float64),
        largest=0.0,
    )
    state = initial_state(without(theta, places_of(~live)), torch.zeros(problem.m, dtype=torch.long), live)
    return replace(state, memory=tensors_of(tree))


def limits(recipe: Recipe, tree: Tree) -> tuple[float, float]:
    """eps1 and eps2."""
    if recipe.cfl_thresholds is None:
        return tree.largest / 10, 6 * tree.largest / 10
    rests, pulls = recipe.cfl_thresholds
    return rests, pulls


def resting(recipe: Recipe, state: ClusterState, tree: Tree) -> Tensor:
    """Clusters that may be split: their models have come to rest, and k is not reached. [places]"""
    leaf = state.live & ~tree.inner
    if state.round < recipe.cfl_after or 2 * int(leaf.sum()) > len(leaf):
        return torch.zeros_like(leaf)
    return leaf & (tree.moved < limits(recipe, tree)[0])


def needs(recipe: Recipe, state: ClusterState) -> Needs:
    """Single updates where a cluster may be split, or somebody has to find its way down the tree."""
    tree = tree_of(state)
    lost = bool(tree.inner[state.identity].any())
    return Needs(updates=lost or bool(resting(recipe, state, tree).any()))


def server(
    problem: Problem, state: ClusterState, now: Round, _ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """The averages by cluster; then ways down the tree, and splits."""
    tree = tree_of(state)
    after = kept(problem, state, average(problem, state, now, apart=True), tree.inner)
    tree = _moved(problem, state, after, now, tree)
    events: list[Event] = []
    if now.replies.updates is not None:
        found = changes_of(problem, state, now)
        after = walked(after, now, tree, found)
        for j in places_of(resting(problem.recipe, state, tree)).tolist():
            rows = torch.nonzero(found.sent == j)[:, 0]
            rows = rows[np.argsort(problem.keys[now.who[rows].numpy()], kind="stable")]
            free = places_of(~after.live)
            parts = parted(problem.recipe, tree, found.of(rows)) if len(free) and len(rows) > 2 else None
            if parts is not None:
                after, tree, event = split(after, tree, j, now.who[rows], parts, found.of(rows))
                events.append(event)
    return replace(after, memory=tensors_of(tree)), events


def _moved(problem: Problem, before: ClusterState, after: ClusterState, now: Round, tree: Tree) -> Tree:
    """The tree with a of the clusters that trained in this round."""
    trained = (now.replies.total.weight.cpu() > 0) & ~tree.inner
    own = own_names(problem, after.theta)
    steps = [(after.theta[name].double() - before.theta[name].double()).reshape(before.k, -1) for name in own]
    square = sum((step.square().sum(1).cpu() for step in steps), torch.zeros(before.k).double())
    length = square.sqrt()
    largest = float(torch.where(trained, length, 0.0).max())
    return replace(tree, moved=torch.where(trained, length, tree.moved), largest=max(tree.largest, largest))


def walked(state: ClusterState, now: Round, tree: Tree, found: Changes) -> ClusterState:
    """Participants at clusters that were split go one level down: to the part that pulled as they do."""
    rows = torch.nonzero(tree.inner[found.sent])[:, 0]
    if not len(rows):
        return state
    like = found.of(rows).along(tree.ways)  # [p, clusters - 1]
    below = tree.parent[1 : len(tree.ways) + 1] == found.sent[rows][:, None]
    place = state.identity.clone()
    place[now.who[rows]] = 1 + torch.where(below, like, -math.inf).argmax(1)
    return replace(state, identity=place)


def parted(recipe: Recipe, tree: Tree, found: Changes) -> tuple[Tensor, float, Tensor] | None:
    """Two parts of a cluster's participants: 0 or 1 [p], alpha, lengths of updates [p]. None: no split."""
    gram = found.gram()
    length = gram.diagonal().clamp(min=0).sqrt()
    if not float(length.max()) > limits(recipe, tree)[1]:
        return None
    cosine = cosines(gram)
    part = bipartition(cosine)
    alpha = float(cosine[part == 0][:, part == 1].max())
    return (part, alpha, length) if math.sqrt((1 - alpha) / 2) > recipe.cfl_gamma else None


def bipartition(cosine: Tensor) -> Tensor:
    """Merge by descending cosine until two parts are left: 0 or 1 [p], the first client's part is 0."""
    from sklearn.cluster import AgglomerativeClustering  # late: a federation's clients never need it

    tree = AgglomerativeClustering(2, metric="precomputed", linkage="single")
    part = torch.from_numpy(tree.fit_predict((1 - cosine).numpy())).long()
    return (part != part[0]).long()


def split(
    state: ClusterState,
    tree: Tree,
    j: int,
    who: Tensor,
    parts: tuple[Tensor, float, Tensor],
    found: Changes,
) -> tuple[ClusterState, Tree, Event]:
    """Cluster j in two, of clients who [p], in the next free places."""
    part, alpha, length = parts
    share = torch.stack([(part == c).double() / (part == c).sum() for c in (0, 1)])
    ways = found.mixed(share / length.clamp(min=SMALLEST)).to(tree.ways)
    ways = torch.cat([tree.ways, ways])
    into = places_of(~state.live)[:2]
    place, live, parent = state.identity.clone(), state.live.clone(), tree.parent.clone()
    place[who], live[into], parent[into] = (
        into[part],
        True,
        j,
    )  # numbers of clients, not places in the cluster
    theta = {name: value.clone() for name, value in state.theta.items()}
    for value in theta.values():
        value[into.to(value.device)] = value[j].clone()
    sizes = [int((part == c).sum()) for c in (0, 1)]
    event = {"event": "split", "cluster": j, "into": into.tolist(), "clients": sizes, "cosine": alpha}
    state = replace(state, theta=theta, live=live, identity=place, unchanged=0, changed=state.round)
    return state, replace(tree, parent=parent, ways=ways), event


def serves(state: ClusterState, losses: Tensor) -> Tensor:
    """The model of least loss on the client's way from the root: [m]. losses: [m, clusters]."""
    tree, allowed = tree_of(state), torch.zeros_like(losses, dtype=torch.bool)
    at = state.identity.clone()
    while bool((at >= 0).any()):
        allowed[torch.nonzero(at >= 0)[:, 0], at[at >= 0]] = True
        at = torch.where(at >= 0, tree.parent[at.clamp(min=0)], -1)
    return identity(torch.where(allowed, losses, torch.nan))


def joined(_recipe: Recipe, state: ClusterState, new: int) -> ClusterState:
    """Who joins begins at the root."""
    return widened(state, torch.zeros(new, dtype=torch.long))


CFL = Method(
    name="cfl",
    title="CFL",
    about="CFL: one model, split in two where its clients pull in different directions",
    start=start,
    models=places,
    needs=needs,
    server=server,
    serves=serves,
    joined=joined,
    at_most_k=True,
    one_start=True,
)
