"""The referee: do two groups of clients need two models? One rule, at one level.

Clients of both groups judge, on samples that no model was trained on since the groups parted, (1) the other
group's model against their own, and (2) the average of the two models, which come from one start, against
their own. Two models are needed where both tests reject at the level alpha:

1. Each group is served relatively better by its own model: what the first loses by changing to the second
   group's model plus what the second loses by changing to the first's is above zero (Welch's test). That one
   of the two models is ahead of the other for everybody cancels out. If both groups follow one law the sum is
   zero, whatever the models, so the groups stay apart with a probability of at most alpha.
2. One model for both, the average, serves them worse than two (the paired t-test). A difference that is there
   but does not pay is not kept.

The clients are those of this federation and the samples are drawn: six clients with a thousand samples can
decide, and so can six thousand with six. Spreads are taken over all samples of a group, so they hold the
spread between samples and that between clients. A constant added to the loss, or a factor, changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ifca.core.replies import Savings
from ifca.core.types import Params
from ifca.methods.method import Event


@dataclass(frozen=True)
class Sums:
    """Sums over samples of what is lost more: their number, the differences, their squares."""

    count: float
    total: float
    square: float

    @property
    def mean(self) -> float:
        """Of a sample."""
        return self.total / self.count if self.count else 0.0

    @property
    def error(self) -> float:
        """The squared standard error of the mean; infinite for fewer than two samples, and of no numbers."""
        spread = self.square - self.total * self.mean
        if self.count < 2 or not math.isfinite(spread):
            return math.inf
        if spread <= 1e-24 * self.square:  # nothing but rounding: all samples say the same
            return 0.0
        return spread / (self.count - 1) / self.count


LARGEST = 1e300  # what is told of a loss that is infinite


@dataclass(frozen=True)
class Verdict:
    """What the clients of two groups said of the other's model, and of one model for both."""

    pair: tuple[int, int]
    samples: int
    loses: float  # on average and sample, under the one model that costs least
    t: float  # of the test that is less sure
    p: float  # the probability of as much or more where nothing is lost, by that test
    better: Literal["average", "first", "second"] = "average"  # the one model that costs least

    def needs_both(self, alpha: float) -> bool:
        """Whether the clients lose beyond doubt."""
        return self.p <= alpha

    def as_event(self, kind: str, alpha: float) -> Event:
        """As the round's record tells it, at the level of a look."""
        (a, b), t = self.pair, self.t if math.isfinite(self.t) else None
        loses = max(-LARGEST, min(LARGEST, self.loses)) if self.loses == self.loses else 0.0
        said = {"samples": self.samples, "loses": loses, "t": t, "p": self.p, "alpha": alpha}
        return {"event": kind, "cluster": a, "other": b, **said}


def above_zero(*parts: Sums) -> tuple[float, float]:
    """T and p of the test that the sum of the means is above zero: Student's of one, Welch's of two."""
    mean, error = sum(part.mean for part in parts), sum(part.error for part in parts)
    if not math.isfinite(error) or (error == 0 and mean == 0):
        return 0.0, 1.0
    if error == 0:
        return math.copysign(math.inf, mean), float(mean < 0)
    unit = -math.frexp(error)[1]  # a power of two changes no digit, and squares are finite then
    squares = (math.ldexp(part.error, unit) ** 2 / (part.count - 1) for part in parts)
    degrees = math.ldexp(error, unit) ** 2 / sum(squares)
    from scipy.special import stdtr  # here: a federation's clients never need it

    t = mean / math.sqrt(error)
    return t, float(stdtr(degrees, -t))


def verdict(pair: tuple[int, int], one_for_both: Sums, first: Sums, second: Sums) -> Verdict:
    """one_for_both: of both groups under the average; first, second: of a group under the other's model."""
    tests = above_zero(first, second), above_zero(one_for_both)
    t, p = max(tests, key=lambda test: (test[1], -test[0]))
    costs = {"average": one_for_both.total, "first": second.total, "second": first.total}
    better: Any = min(costs, key=lambda name: costs[name])
    loses = costs[better] / one_for_both.count if one_for_both.count else 0.0
    return Verdict(pair, int(one_for_both.count), loses, t, p, better)


def pairs_of(groups: Sequence[int]) -> list[tuple[int, int]]:
    """Every two groups, the lower number first."""
    return [(a, b) for at, a in enumerate(groups) for b in groups[at + 1 :]]


def averages(theta: Params, weight: Tensor, pairs: Sequence[tuple[int, int]]) -> Params:
    """The average of the two models of each pair, by the clients' turns that made them: [pairs, ...]."""
    a, b = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    share = weight[a] / (weight[a] + weight[b]).clamp(min=1e-300)
    share = torch.where(weight[a] + weight[b] > 0, share, 0.5)

    device = next(iter(theta.values())).device
    a, b, share = a.to(device), b.to(device), share.to(device)

    def mean(value: Tensor) -> Tensor:
        part = share.reshape(-1, *[1] * (value.dim() - 1))
        return (part * value[a].double() + (1 - part) * value[b].double()).to(value.dtype)

    return {name: mean(value) for name, value in theta.items()}


def compared(groups: Sequence[int], own: Tensor) -> tuple[Tensor, Tensor]:
    """Whom each client judges: its group's model [p]; the others', and the averages with them [p, q].

    Numbers among the models of the groups, followed by the averages of pairs_of(groups). own: [p] its group.
    """
    number = {group: at for at, group in enumerate(groups)}
    place = {pair: len(groups) + at for at, pair in enumerate(pairs_of(groups))}
    rows = []
    for a in groups:
        others = [b for b in groups if b != a]
        rows.append([*(number[b] for b in others), *(place[min(a, b), max(a, b)] for b in others)])
    at = torch.full((max(groups) + 1,), -1)
    at[list(groups)] = torch.arange(len(groups))
    return at[own], torch.tensor(rows)[at[own]]


def added(evidence: Tensor, groups: Sequence[int], own: Tensor, found: Savings) -> Tensor:
    """The evidence with what clients of the groups own [p] said.

    [2, 3, k, k]: of clients of a, under the model of b and under the average of both: count, total, square.
    """
    after = evidence.clone()
    for a in sorted(set(own.tolist())):
        mine = own == a
        count, total, square = found.samples[mine].sum(), found.total[mine].sum(0), found.square[mine].sum(0)
        others = torch.tensor([b for b in groups if b != a], dtype=torch.long)
        after[:, 0, a, others] += count
        after[:, 1, a, others] += total.view(2, -1)
        after[:, 2, a, others] += square.view(2, -1)
    return after


def verdicts(evidence: Tensor, groups: Sequence[int]) -> list[Verdict]:
    """What is known of every two groups."""

    def sums(values: Tensor) -> Sums:
        return Sums(*values.tolist())

    other, both = evidence
    return [
        verdict((a, b), sums(both[:, a, b] + both[:, b, a]), sums(other[:, a, b]), sums(other[:, b, a]))
        for a, b in pairs_of(groups)
    ]


def to_merge(found: Sequence[Verdict], alpha: float) -> list[Verdict]:
    """Pairs that one model serves as well: each the closest to the other, so that no group is in two."""
    closest: dict[int, Verdict] = {}
    for one in sorted(found, key=lambda one: (-one.p, one.t)):
        for group in one.pair:
            closest.setdefault(group, one)
    mutual = [one for one in found if all(closest[group] is one for group in one.pair)]
    return [one for one in mutual if not one.needs_both(alpha)]


def closest(found: Sequence[Verdict]) -> list[Verdict]:
    """The two groups nearest to sharing a model, as evidence that all need their own; none of one group."""
    return sorted(found, key=lambda one: (one.p, -one.t))[-1:]
