"""How the server puts the updates of a cluster together: a rule is a value.

An additive rule (a mean) needs the sum of the updates only, which engines fold as they go. Any other rule is
given the updates themselves, in blocks of coordinates (core/replies.py), and answers block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.averages import zero_sum
from ifca.core.errors import InvalidInput
from ifca.core.identity import one_hot
from ifca.core.recipe import Recipe
from ifca.core.replies import Updates
from ifca.core.types import ClusterSum, Params, model_count

Blocks = Callable[[], Iterator[Tensor]]
"""The updates of p clients, [p, b] each, from the first on; a rule may go through them more than once."""
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


def coordinate_median(blocks: Blocks, _weight: Tensor) -> Iterator[Tensor]:
    """The median of each coordinate; of an even number of clients the mean of the middle two."""
    for values in blocks():
        ordered, p = values.sort(0).values, len(values)
        yield (ordered[(p - 1) // 2].double() + ordered[p // 2].double()) / 2


_RULES = {
    rule.name: rule
    for rule in (
        Aggregation("mean", "The mean of the clients' updates, as in the paper."),
        Aggregation("weighted-mean", "The mean, each client by its number of samples.", by_samples=True),
        Aggregation("median", "The median of each coordinate.", coordinate_median),
    )
}
BUILT_IN_RULES = tuple(_RULES)


def register_aggregation(rule: Aggregation) -> Aggregation:
    """Make a rule known by its name."""
    if rule.name in BUILT_IN_RULES:
        raise InvalidInput(f"aggregation {rule.name} is the package's own; choose another name")
    _RULES[rule.name] = rule
    return rule


def rule_of(recipe: Recipe) -> Aggregation:
    """The rule that a recipe names."""
    if recipe.aggregation not in _RULES:
        known = f"{', '.join(_RULES)}, or package.module:NAME of your own"
        raise InvalidInput(f"aggregation must be one of {known}, got {recipe.aggregation!r}")
    return _RULES[recipe.aggregation]


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
) -> ClusterSum:
    """What the rule says of each cluster, times the cluster's weight: averages divide by the weight again.

    identity, weight: [p]. A shared coordinate is put together over all participants.
    """
    total, k = zero_sum(theta), model_count(theta)
    identity = identity.to(weight.device)
    total.weight[:] = (one_hot(identity, k) * weight.double()[:, None]).sum(0)
    apart = frozenset(theta) - shared
    for j in sorted(set(identity.tolist())):
        members = torch.nonzero(identity == j)[:, 0]
        _put(total, rule, updates.of(members.cpu()), apart, weight[members], torch.tensor([j]))
    _put(total, rule, updates, shared, weight, torch.arange(k))
    return total


def _put(
    total: ClusterSum,
    rule: Aggregation,
    updates: Updates,
    names: frozenset[str],
    weight: Tensor,
    clusters: Tensor,
) -> None:
    """What some clients say of some parameters, times the clusters' weights, into the sums of clusters."""
    assert rule.combine is not None
    parts = updates.layout(names) if names else []
    answers = iter(rule.combine(lambda: updates.blocks(names), weight) if names else ())
    for part in parts:
        value = _checked(rule, next(answers, None), part.width)
        flat = total.total[part.name].view(len(total.weight), -1)
        there = clusters.to(flat.device)
        flat[there, part.start : part.start + part.width] = total.weight[there, None] * value.double()


def _checked(rule: Aggregation, value: Tensor | None, width: int) -> Tensor:
    """The answer to a block, if it is one."""
    if not isinstance(value, Tensor) or value.shape != (width,):
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r}"
        raise InvalidInput(
            f"aggregation {rule.name}: must give a tensor of shape ({width},) for this block, got {got}"
        )
    if not bool(torch.isfinite(value).all()):
        raise InvalidInput(f"aggregation {rule.name}: gives NaN or infinite values")
    return value
