"""How the server puts the updates of a cluster together: a rule is a value.

An additive rule (a mean) needs the sum of the updates only, which engines fold as they go. Any other rule is
given the changes that members ask for (a gradient; with option model their model minus the one that they were
sent), in blocks of coordinates (core/replies.py), and answers block by block. robust_rules.py has such rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.averages import zero_sum
from ifca.core.errors import InvalidInput
from ifca.core.identity import one_hot
from ifca.core.recipe import Recipe
from ifca.core.replies import Blocks, Part, Updates
from ifca.core.types import ClusterSum, Params, model_count, select
from ifca.methods.robust_rules import MIXED, ROBUST, combined

AT_ONCE = 2**22  # numbers of a block that a rule is given
Combine = Callable[[Blocks, Tensor], Iterator[Tensor]]
"""blocks, weights of the clients [p] -> what they say together, [b] for each block."""


@dataclass(frozen=True)
class Aggregation:
    """One rule."""

    name: str  # as configs call it
    about: str  # one line
    combine: Combine | None = None  # None: a weighted mean, for which sums are enough
    by_samples: bool = False  # clients weigh by their number of samples, whatever the recipe says

    @property
    def additive(self) -> bool:
        """Whether the sum of the updates is all that it needs."""
        return self.combine is None


_RULES = {
    rule.name: rule
    for rule in (
        Aggregation("mean", "The mean of the clients' updates, as in the paper."),
        Aggregation("weighted-mean", "The mean, each client by its number of samples.", by_samples=True),
    )
}
BUILT_IN_RULES = (*_RULES, *ROBUST)


def register_aggregation(rule: Aggregation) -> Aggregation:
    """Make a rule known by its name."""
    if rule.name.removeprefix(MIXED) in BUILT_IN_RULES:
        raise InvalidInput(f"aggregation {rule.name} is the package's own; choose another name")
    _RULES[rule.name] = rule
    return rule


def rule_of(recipe: Recipe) -> Aggregation:
    """The rule that a recipe names."""
    name = recipe.aggregation
    if name in _RULES:
        return _RULES[name]
    mixed, plain = name.startswith(MIXED), name.removeprefix(MIXED)
    if plain not in ROBUST:
        own = [rule for rule in _RULES if rule not in BUILT_IN_RULES]
        known = f"{', '.join([*BUILT_IN_RULES, *own])}, or package.module:NAME of your own"
        said = f"aggregation must be one of {known} ({MIXED} may stand before each but the means)"
        raise InvalidInput(f"{said}, got {name!r}")
    about = ROBUST[plain].about
    return Aggregation(name, about, partial(combined, ROBUST[plain], recipe.attackers, mixed))


def weighs(recipe: Recipe) -> bool:
    """Whether clients weigh by their number of samples."""
    return recipe.weighted or rule_of(recipe).by_samples


def client_weights(recipe: Recipe, sizes: NDArray[np.int64], like: Tensor) -> Tensor:
    """What each client weighs in averages: 1, or its number of samples. sizes: [c]."""
    if weighs(recipe):
        return torch.from_numpy(sizes).to(like)
    return like.new_ones(len(sizes))


def aggregated(
    rule: Aggregation,
    theta: Params,
    updates: Updates,
    identity: Tensor,
    weight: Tensor,
    shared: frozenset[str],
    *,
    models: bool = False,
) -> ClusterSum:
    """What the rule says of each cluster, times the cluster's weight: averages divide by the weight again.

    identity, weight: [p]. A shared coordinate is put together over all participants. models: updates are
    models, trained from theta; the rule is given what they change.
    """
    total, k = zero_sum(theta), model_count(theta)
    identity = identity.to(weight.device)
    total.weight[:] = (one_hot(identity, k) * weight.double()[:, None]).sum(0)
    apart = frozenset(theta) - shared
    for j in sorted(set(identity.tolist())):
        members = torch.nonzero(identity == j)[:, 0]
        sent = select(theta, j) if models else None
        _put(total, rule, updates.of(members.cpu()), apart, weight[members], torch.tensor([j]), sent)
    _put(total, rule, updates, shared, weight, torch.arange(k), select(theta, 0) if models else None)
    return total


def _put(
    total: ClusterSum,
    rule: Aggregation,
    updates: Updates,
    names: frozenset[str],
    weight: Tensor,
    clusters: Tensor,
    sent: Params | None,
) -> None:
    """What some clients say of some parameters, times the clusters' weights, into the sums of clusters."""
    assert rule.combine is not None
    if not names:
        return
    changes = partial(_changes, updates, names, sent)
    answers = iter(rule.combine(changes, weight))
    for part in _parts(updates.layout(names), len(weight)):
        value = _checked(rule, next(answers, None), part.width, changes)
        if sent is not None:
            value = value.double() + _some(sent, part)
        flat = total.total[part.name].view(len(total.weight), -1)
        there = clusters.to(flat.device)
        flat[there, part.start : part.start + part.width] = total.weight[there, None] * value.double()


def _parts(layout: list[Part], p: int) -> list[Part]:
    """The same coordinates in blocks that are no larger than a rule is given."""
    width = max(1, AT_ONCE // p)
    return [
        Part(part.name, start, min(width, part.start + part.width - start))
        for part in layout
        for start in range(part.start, part.start + part.width, width)
    ]


def _changes(updates: Updates, names: frozenset[str], sent: Params | None) -> Iterator[Tensor]:
    """Such blocks of what members change: their values, minus what they were sent where that is given."""
    for whole, values in zip(updates.layout(names), updates.blocks(names), strict=True):
        for part in _parts([whole], len(values)):
            start = part.start - whole.start
            some = values[:, start : start + part.width]
            yield some if sent is None else some - _some(sent, part)


def _some(model: Params, part: Part) -> Tensor:
    """The coordinates of a part of one model."""
    return model[part.name].flatten()[part.start : part.start + part.width]


def _checked(rule: Aggregation, value: Tensor | None, width: int, changes: Blocks) -> Tensor:
    """The answer to a block, if it is one. Where clients sent no numbers, the models will tell."""
    if not isinstance(value, Tensor) or value.shape != (width,):
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r}"
        raise InvalidInput(
            f"aggregation {rule.name}: must give a tensor of shape ({width},) for this block, got {got}"
        )
    if not bool(torch.isfinite(value).all()) and all(bool(torch.isfinite(v).all()) for v in changes()):
        raise InvalidInput(f"aggregation {rule.name}: gives NaN or infinite values")
    return value
