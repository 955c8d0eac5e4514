"""Rules for clusters in which some members may send anything.

A cluster has p members, of whom at most f are assumed to attack; x_i is the change that member i asks for. A
rule is of one of two kinds:
- by coordinate: the median or the trimmed mean of each;
- by distance: sum over i of c_i x_i, where c follows from the products <x_i, x_j> over all coordinates, so
  that the changes are gone through twice and no more, however many steps it takes to find c.
Nearest-neighbour mixing may come before each of them. No rule holds against half of a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ifca.core.replies import Blocks

MIXED = "nnm+"  # before the name of a rule: nearest-neighbour mixing comes first
TOLERANCE = 1e-10  # of the members' median distance: an answer is found where a step moves it by no more
MOST_STEPS = 1000
NEAR = 1e-6  # of the median norm of changes: the geometric median takes smaller distances for this one
MOST = 1e130  # a larger change of a coordinate, or one that is no number, counts as this: squares are finite
PANEL = 256  # members whose products with the others are taken at once


def assumed(attackers: float, p: int) -> int:
    """f: the share of p members, rounded up, but always fewer than half of them."""
    return min(math.ceil(attackers * p - 1e-9), (p - 1) // 2)


# by coordinate: values [p, b], f -> [b]


def coordinate_median(values: Tensor, _f: int) -> Tensor:
    """The median of each coordinate; of an even number of members the mean of the middle two."""
    p = len(values)
    return _in_order(values)[(p - 1) // 2 : p // 2 + 1].double().mean(0)


def trimmed_mean(values: Tensor, f: int) -> Tensor:
    """The mean of each coordinate without its f largest and f smallest values."""
    return _in_order(values)[f : len(values) - f].mean(0, dtype=torch.float64)


def _in_order(values: Tensor) -> Tensor:
    """Each coordinate sorted; numpy does it ten times as fast as torch on a CPU."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.numpy(), axis=0))
    return values.sort(0).values


# by distance: products [p, p], weights [p], f -> c [p]


def clip(products: Tensor, weight: Tensor, _f: int) -> Tensor:
    """The mean by weight of changes that are cut to the median norm: half of them are no longer than it."""
    norms = products.diagonal().clamp(min=0).sqrt()
    return _cut(norms, _lower_median(norms)) * weight / weight.sum()


def centred_clipping(products: Tensor, weight: Tensor, _f: int) -> Tensor:
    """Clip around a member, then again and again around the last answer v.

    v <- v + mean by weight of (x_i - v) min(1, r / ||x_i - v||). r is the median of the members' median
    distances to the others, so that members who scatter about one point are not cut. The first v is the
    change with the least sum of distances; the last one does not depend on it.
    """
    p, apart = len(products), _squared_distances(products).sort(1).values[:, 1:].sqrt()
    r = _lower_median(apart[:, (p - 2) // 2])
    share, c = weight / weight.sum(), _least(apart.sum(1), 1)
    for _ in range(MOST_STEPS):
        far = _distances_from(c, products)
        part = _cut(far, r) * share
        before, c = c, c * (1 - part.sum()) + part
        if _rests(c - before, products, far):
            break
    return c


def geometric_median(products: Tensor, _weight: Tensor, _f: int) -> Tensor:
    """The point with the least sum of distances to all changes, by Weiszfeld's steps from their mean."""
    p, least = len(products), NEAR * float(_lower_median(products.diagonal().clamp(min=0).sqrt()))
    c = products.new_full((p,), 1 / p)
    for _ in range(MOST_STEPS):
        far = _distances_from(c, products).clamp(min=max(least, 1e-300))
        before, c = c, (1 / far) / (1 / far).sum()
        if _rests(c - before, products, far):
            break
    return c


def krum(products: Tensor, _weight: Tensor, f: int) -> Tensor:
    """The change that is nearest to its p - f - 1 nearest others, by squares; of equal ones their mean."""
    return _least(_krum_scores(products, f), 1)


def multi_krum(products: Tensor, _weight: Tensor, f: int) -> Tensor:
    """The mean of the p - f changes that Krum likes best."""
    return _least(_krum_scores(products, f), len(products) - f)


def mixing(products: Tensor, f: int) -> Tensor:
    """Nearest-neighbour mixing: each change becomes the mean of the p - f nearest, itself one. [p, p]."""
    return _least(_squared_distances(products), len(products) - f)


def _krum_scores(products: Tensor, f: int) -> Tensor:
    p = len(products)
    return _squared_distances(products).sort(1).values[:, 1 : p - f].sum(1)  # the first is its own, 0


def _least(values: Tensor, count: int) -> Tensor:
    """Equal shares for the count least values of the last dimension, and for those equal to the last one."""
    taken = (values <= values.sort(-1).values[..., count - 1 : count]).double()
    return taken / taken.sum(-1, keepdim=True)


def _squared_distances(products: Tensor) -> Tensor:
    """||x_i - x_j||^2, exactly symmetric: [p, p]."""
    squares = products.diagonal()
    return (squares[:, None] + squares - 2 * products).clamp(min=0).fill_diagonal_(0)


def _distances_from(c: Tensor, products: Tensor) -> Tensor:
    """||x_i - v|| of v = sum over i of c_i x_i: [p]."""
    along = products @ c
    return (products.diagonal() - 2 * along + c @ along).clamp(min=0).sqrt()


def _rests(moved: Tensor, products: Tensor, far: Tensor) -> bool:
    """Whether a step of c by moved [p] is none. far: the members' distances from where it began."""
    length = (moved @ (products @ moved)).clamp(min=0).sqrt()
    return bool(length <= TOLERANCE * _lower_median(far))


def _cut(lengths: Tensor, most: Tensor) -> Tensor:
    """What each length is multiplied by so that none is more than most: [p]."""
    return torch.where(lengths > most, most / torch.where(lengths > most, lengths, 1), 1)


def _lower_median(values: Tensor) -> Tensor:
    """Of an even number the smaller one of the middle two: of two members the one that asks for less."""
    return values.sort().values[(len(values) - 1) // 2]


# what the server does


class Robust(NamedTuple):
    """One rule; either by coordinate or by distance."""

    about: str  # one line
    by_coordinate: Callable[[Tensor, int], Tensor] | None = None
    by_distance: Callable[[Tensor, Tensor, int], Tensor] | None = None
    norms: bool = False  # of the products only the diagonal is needed


ROBUST = {
    "median": Robust("The median of each coordinate; samples do not count.", coordinate_median),
    "clip": Robust(
        "The mean of changes cut to the cluster's median norm; weighs samples as the mean does.",
        by_distance=clip,
        norms=True,
    ),
    "trimmed-mean": Robust(
        "The mean of each coordinate without its largest and smallest values; samples do not count.",
        trimmed_mean,
    ),
    "geometric-median": Robust(
        "The point with the least sum of distances to all changes; samples do not count.",
        by_distance=geometric_median,
    ),
    "krum": Robust("The one change that is nearest to its neighbours; samples do not count.", None, krum),
    "multi-krum": Robust(
        "The mean of the changes that Krum likes best; samples do not count.", None, multi_krum
    ),
    "centred-clipping": Robust(
        "The mean of changes cut around its own answer; weighs samples as the mean does.",
        by_distance=centred_clipping,
    ),
}


def combined(rule: Robust, attackers: float, mixed: bool, blocks: Blocks, weight: Tensor) -> Iterator[Tensor]:
    """What p members say together, block by block. attackers: assumed share; mixed: mixing comes first."""
    p, mix, blocks = len(weight), None, partial(_bounded, blocks)
    f = assumed(attackers, p)
    if p == 1:
        yield from (values[0].double() for values in blocks())
        return
    if mixed or rule.by_distance is not None:
        products = _squares(blocks) if rule.norms and not mixed else _products(blocks, p)
        if mixed:
            mix = mixing(products, f)
            products = mix @ products @ mix.t()
    if rule.by_distance is not None:
        c = rule.by_distance(products, weight.double(), f)
        c = c if mix is None else c @ mix
        yield from ((c.to(values) @ values).double() for values in blocks())
    elif rule.by_coordinate is not None:
        for values in blocks():
            yield rule.by_coordinate(values if mix is None else mix.to(values) @ values, f)


def _bounded(blocks: Blocks) -> Iterator[Tensor]:
    """The same changes without coordinates whose squares would not be numbers.

    A change that is no number is only a large one, as long as most members' are numbers; else training has
    diverged, and the answer may say so.
    """
    for values in blocks():
        most = min(MOST, torch.finfo(values.dtype).max)
        wrong = (~values.isfinite()).any(1)
        if 0 < 2 * int(wrong.sum()) < len(values):
            values = values.nan_to_num(most, most, -most)
        yield values.clamp(-MOST, MOST) if values.dtype == torch.float64 else values


def _squares(blocks: Blocks) -> Tensor:
    """||x_i||^2 on the diagonal of zeros: [p, p]. In double precision huge numbers have squares, too."""
    parts = []
    for values in blocks():
        norms = torch.linalg.vector_norm(values, dim=1).double()
        if not bool(norms.isfinite().all()):
            norms = torch.linalg.vector_norm(values, dim=1, dtype=torch.float64)
        parts.append(norms.square())
    return torch.stack(parts).sum(0).diag()


def _products(blocks: Blocks, p: int) -> Tensor:
    """<x_i, x_j> over all coordinates, in double precision: [p, p]. One half is formed, panel by panel."""
    total = None
    for values in blocks():
        values = values.double()
        total = values.new_zeros(p, p) if total is None else total
        for first in range(0, p, PANEL):
            total[first:, first : first + PANEL] += values[first:] @ values[first : first + PANEL].t()
    assert total is not None
    return total.tril() + total.tril(-1).t()
