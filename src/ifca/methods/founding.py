"""Founding: which clients may belong together, before the models can say so.

Every client solves a small convex problem of its own (core/probe.py; line 1 of Algorithm 1 in spirit): a few
thousand numbers, sent once. Two founders propose partitions of these points into k groups: k-means, and
Ward's tree, which keeps a small distant group apart. Clients compare the mean solutions of their groups on
samples set aside; the tree's are taken only where those of k-means lose beyond doubt.

As k-means++ is to k-means, this is only the start of Algorithm 2. Solutions tell lasting differences from
passing ones: first updates mostly tell which classes a client has many of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.checks import MANY
from ifca.core.identity import identity
from ifca.core.random import UInts
from ifca.core.replies import Savings, Solutions
from ifca.core.types import Params
from ifca.methods.k_means import k_means
from ifca.methods.method import Compare, Problem
from ifca.methods.referee import Sums, above_zero

AGAIN = 16  # rounds after which free places are tried; then after four times as many, and so on
FINE = 1e-12  # of the longest squared: what may be added to squared distances
TREE = 5000  # clients up to which Ward's tree is grown: it needs all distances
FOUNDERS, NUMBERS = 2**15, 2**26  # clients whose solutions are put into groups, and numbers of theirs


def groups_of(problem: Problem, solutions: Solutions) -> tuple[Tensor, list[Savings]]:
    """A group of each client [m], and what clients said of proposals."""
    asked = solutions, problem.compare, problem.models, problem.keys, problem.recipe.alpha
    if problem.checked:
        return founded_by_several(*asked)
    group, said = founded(*asked)
    return group, [] if said is None else [said]


def founded(
    solutions: Solutions, compare: Compare, k: int, keys: UInts, alpha: float
) -> tuple[Tensor, Savings | None]:
    """A group of each client [m], -1 for one that sent nothing; and what clients said of two proposals."""
    here = solutions.answered
    most = min(FOUNDERS, NUMBERS // sum(value[0].numel() for value in solutions.theta.values()))
    if int(here.sum()) > most:
        return _founded_by_some(solutions, compare, k, keys, alpha, most), None
    flat = torch.cat([value[here].flatten(1) for value in solutions.theta.values()], 1).double()
    groups, keys, k = torch.full(here.shape, -1), keys[here.numpy()], distinct(flat, k)
    if k < 2:
        groups[here] = 0
        return groups, None
    points, products = points_of(flat)
    by_means = by_k_means(points, k, keys)
    if len(points) > TREE:
        groups[here] = by_means
        return groups, None
    proposals = [by_means, ward(points @ points.t() if products is None else products, k, keys)]
    if torch.equal(*proposals):
        groups[here] = proposals[0]
        return groups, None
    found = _compared(solutions, compare, here, proposals)
    groups[here] = proposals[_loses(found, alpha)]
    return groups, found


def _founded_by_some(
    solutions: Solutions, compare: Compare, k: int, keys: UInts, alpha: float, most: int
) -> Tensor:
    """The same of very many clients: some of them, by their keys, are put into groups; every other joins the
    group whose mean solution is nearest to its own.
    """
    here = torch.nonzero(solutions.answered)[:, 0]
    some = here[torch.from_numpy(np.argsort(keys[here.numpy()], kind="stable")[:most])].sort().values
    founders = torch.zeros_like(solutions.answered)
    founders[some] = True
    first = founded(solutions._replace(answered=founders), compare, k, keys, alpha)[0][some]
    values = [value.flatten(1) for value in solutions.theta.values()]
    flat = values[0] if len(values) == 1 else torch.cat(values, 1)  # one is not copied
    means = group_means({"": flat[some.to(flat.device)]}, first)[""].double()
    groups = torch.full(solutions.answered.shape, -1)
    for part in torch.split(here, most):
        groups[part] = torch.cdist(flat[part.to(flat.device)].double(), means).argmin(1).cpu()
    groups[some] = first
    return groups


def distinct(points: Tensor, most: int) -> int:
    """How many different points there are, as far as that matters: most is the most that is counted."""
    left = torch.ones(len(points), dtype=torch.bool, device=points.device)
    for count in range(most):
        if not bool(left.any()):
            return count
        left &= (points != points[left.int().argmax()]).any(1)
    return most


def founded_by_several(
    solutions: Solutions, compare: Compare, k: int, keys: UInts, alpha: float
) -> tuple[Tensor, list[Savings]]:
    """The same where a client may be lying: one that is a group by itself takes no place that others need.

    The others are put into k groups without it, and say whether they lose beyond doubt where it has a place.
    """
    group, said = founded(solutions, compare, k, keys, alpha)
    heard, here = [] if said is None else [said], solutions.answered
    sizes = torch.bincount(group[here])
    others = here & (sizes[group.clamp(min=0)] > 1)
    if bool(others[here].all()) or int(others.sum()) < MANY:
        return group, heard
    without, said = founded(solutions._replace(answered=others), compare, k, keys, alpha)
    heard += [] if said is None else [said]
    seen = numbered(group[others], keys[others.numpy()])
    heard.append(_compared(solutions, compare, others, [seen, without[others]]))
    return without if _loses(heard[-1], alpha) else group, heard


def _loses(found: Savings, alpha: float) -> bool:
    """Whether clients lose beyond doubt."""
    sums = Sums(*(float(part.sum()) for part in (found.samples, found.total, found.square)))
    return above_zero(sums)[1] <= alpha


def _compared(solutions: Solutions, compare: Compare, here: Tensor, proposals: list[Tensor]) -> Savings:
    """What clients lose more under the first proposal than under the second."""
    means = [group_means({n: v[here] for n, v in solutions.theta.items()}, some) for some in proposals]
    both = {name: torch.cat([mean[name] for mean in means]) for name in means[0]}
    second = proposals[1] + int(proposals[0].max()) + 1
    return compare(both, torch.nonzero(here)[:, 0], second, proposals[0][:, None])


def group_means(theta: Params, groups: Tensor) -> Params:
    """The mean of each group's models: [m, ...] -> [groups, ...]."""
    share = torch.nn.functional.one_hot(groups).double()
    share = share / share.sum(0).clamp(min=1)

    def mean(value: Tensor) -> Tensor:
        found: Tensor = torch.tensordot(share.T.to(value.device), value.double(), dims=1)
        return found.to(value.dtype)

    return {name: mean(value) for name, value in theta.items()}


def points_of(flat: Tensor) -> tuple[Tensor, Tensor | None]:
    """Models [m, d] as points [m, at most m] around zero: their coordinates in the space that they span.

    L of L L' = X X' has the distances of X but for FINE, and a clusterer has far fewer numbers to look at.
    X X' is returned, too, where it was worked out.
    """
    flat = flat - flat.mean(0)
    if len(flat) >= flat.shape[1]:
        return flat, None
    products = flat @ flat.t()
    least = (FINE * products.diagonal().max()).clamp(min=1e-200)
    products.diagonal().add_(least)  # it has no inverse: the points have mean zero
    return torch.linalg.cholesky(products), products


def by_k_means(points: Tensor, k: int, keys: UInts) -> Tensor:
    """A partition of the clients into k groups by k-means: [m]."""
    order = torch.from_numpy(np.argsort(keys, kind="stable")).to(points.device)
    return _placed(k_means(points[order], k).numpy(), keys)


def ward(products: Tensor, k: int, keys: UInts) -> Tensor:
    """The same by Ward's tree, of points whose products with each other are given: [m, m]."""
    from scipy.cluster.hierarchy import cut_tree, linkage
    from scipy.spatial.distance import squareform

    order = torch.from_numpy(np.argsort(keys, kind="stable")).to(products.device)
    products = products[order][:, order]
    length = products.diagonal().clone()
    apart = products.mul_(-2).add_(length).add_(length[:, None]).clamp_(min=0).sqrt_()
    tree = linkage(squareform(apart.cpu().numpy(), force="tovector", checks=False), "ward")
    return _placed(cut_tree(tree, k)[:, 0].astype(np.int64), keys)


def bisected(updates: Tensor, groups: Tensor, places: Sequence[int], keys: UInts) -> Tensor:
    """Groups [p] parted in two by the directions of their clients' updates [p, q], the most spread first:
    one part goes to a place of its own, until there are no places left.
    """
    points, groups = torch.nn.functional.normalize(updates.double()).cpu(), groups.clone()
    for place in places:
        own = {j: points[groups == j] - points[groups == j].mean(0) for j in set(groups.tolist())}
        spread = {j: float(some.square().sum()) for j, some in own.items()}
        most = max(sorted(spread), key=lambda j: spread[j])
        if distinct(own[most], 2) < 2:
            break
        inside = groups == most
        part = by_k_means(own[most], 2, keys[inside.numpy()])
        groups[inside] = torch.where(part == 1, place, most)
    return groups


def _placed(label: NDArray[np.int64], keys: UInts) -> Tensor:
    """Labels of the clients in the order of their keys, so that it does not matter how they are listed."""
    placed = np.empty_like(label)
    placed[np.argsort(keys, kind="stable")] = label
    return numbered(torch.from_numpy(placed), keys)


def numbered(labels: Tensor, keys: UInts) -> Tensor:
    """Groups numbered by their members' keys, so that the order of the clients does not matter."""
    found, at = np.unique(labels.numpy(), return_inverse=True)
    first = np.full(len(found), np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(first, at, keys)
    return torch.from_numpy(np.argsort(np.argsort(first, kind="stable"))[at].astype(np.int64))


def is_trial(t: int) -> bool:
    """4, 8, 16, ... rounds after groups were parted clients that are held choose: can they be let go?"""
    return t >= 4 and t & (t - 1) == 0


def to_go(t: int) -> int:
    """Rounds until groups are parted again: after 16, 64, 256, ..."""
    again = AGAIN
    while again <= t:
        again *= 4
    return again - t


def own_is_best(live: list[int], given: Tensor, losses: Tensor) -> bool:
    """Whether each model has, of those to whom it was given [p], the lowest mean loss. losses: [p, k]."""
    heard = [j for j in live if bool((given == j).any())]
    return all(int(identity(losses[given == j].mean(0))) == j for j in heard)
