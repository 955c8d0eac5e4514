"""The referee: do two groups of clients need two models, or does one serve both as well?

The one model that would serve both is the average of the two, which come from one start. Every client of the
two groups compares it with its own group's model on samples that neither was trained on since they parted.
What it loses more, sample by sample, is tested: one-sided, paired, Student's t at the level alpha. If the
clients do not lose beyond doubt, the two groups become one.

Where both groups follow one law, the average is no worse than the two models (the loss is convex between
them), so they stay apart with a probability of at most alpha. The clients are those of this federation and
the samples are drawn: six clients with a thousand samples can decide, and so can six thousand with six. The
spread of the differences is taken around their mean over all samples, so it holds the spread between samples
and that between clients. A constant added to the loss, or a factor, changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ifca.core.replies import Savings
from ifca.core.types import Params
from ifca.methods.method import Event


@dataclass(frozen=True)
class Verdict:
    """What the clients of two groups said of one model for both."""

    pair: tuple[int, int]
    samples: int
    loses: float  # on average and sample, under the average of the two models
    t: float  # the same in its standard errors
    p: float  # the probability of as much or more where nothing is lost

    def needs_both(self, alpha: float) -> bool:
        """Whether the clients lose beyond doubt."""
        return self.p <= alpha

    def as_event(self, kind: str, alpha: float) -> Event:
        """As the round's record tells it, at the level of a look."""
        (a, b), t = self.pair, self.t if math.isfinite(self.t) else None
        said = {"samples": self.samples, "loses": self.loses, "t": t, "p": self.p, "alpha": alpha}
        return {"event": kind, "cluster": a, "other": b, **said}


def verdict(pair: tuple[int, int], count: float, total: float, square: float) -> Verdict:
    """The test on sums over samples: of the differences, and of their squares."""
    if count < 2:
        return Verdict(pair, int(count), 0.0, 0.0, 1.0)
    mean = total / count
    variance = max(0.0, square - total * mean) / (count - 1)
    if variance <= 1e-24 * square / count:  # nothing but rounding: all samples say the same
        t = math.copysign(math.inf, mean) if mean else 0.0
    else:
        t = mean / math.sqrt(variance / count)
    from scipy.stats import t as student  # here: it takes a second to import

    return Verdict(pair, int(count), mean, t, float(student.sf(t, count - 1)))


def pairs_of(groups: Sequence[int]) -> list[tuple[int, int]]:
    """Every two groups, the lower number first."""
    return [(a, b) for at, a in enumerate(groups) for b in groups[at + 1 :]]


def averages(theta: Params, weight: Tensor, pairs: Sequence[tuple[int, int]]) -> Params:
    """The average of the two models of each pair, by the clients' turns that made them: [pairs, ...]."""
    a, b = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    share = weight[a] / (weight[a] + weight[b]).clamp(min=1e-300)
    share = torch.where(weight[a] + weight[b] > 0, share, 0.5)

    def mean(value: Tensor) -> Tensor:
        part = share.to(value.device).reshape(-1, *[1] * (value.dim() - 1))
        return (part * value[a].double() + (1 - part) * value[b].double()).to(value.dtype)

    return {name: mean(value) for name, value in theta.items()}


def compared(groups: Sequence[int], own: Tensor) -> tuple[Tensor, Tensor]:
    """Whom each client judges: its group's model [p], and its group's averages with the others [p, q].

    Numbers among the models of the groups, followed by the averages of pairs_of(groups). own: [p] its group.
    """
    number = {group: at for at, group in enumerate(groups)}
    place = {pair: len(groups) + at for at, pair in enumerate(pairs_of(groups))}
    rows = {a: [place[min(a, b), max(a, b)] for b in groups if b != a] for a in groups}
    mine = own.tolist()
    return torch.tensor([number[a] for a in mine]), torch.tensor([rows[a] for a in mine])


def added(evidence: Tensor, groups: Sequence[int], own: Tensor, found: Savings) -> Tensor:
    """The evidence [3, k, k] (count, total, square by pair) with what clients of the groups own [p] said."""
    after = evidence.clone()
    for a in sorted(set(own.tolist())):
        mine = own == a
        others = [b for b in groups if b != a]
        count, total, square = found.samples[mine].sum(), found.total[mine].sum(0), found.square[mine].sum(0)
        for at, b in enumerate(others):
            sums = torch.stack([count.double(), total[at], square[at]])
            after[:, a, b] += sums
            after[:, b, a] += sums
    return after


def verdicts(evidence: Tensor, groups: Sequence[int]) -> list[Verdict]:
    """What is known of every two groups."""
    return [verdict(pair, *evidence[:, pair[0], pair[1]].tolist()) for pair in pairs_of(groups)]


def to_merge(found: Sequence[Verdict], alpha: float) -> list[Verdict]:
    """Pairs that one model serves as well: each the closest to the other, so that no group is in two."""
    closest: dict[int, Verdict] = {}
    for one in sorted(found, key=lambda one: (-one.p, one.t)):
        for group in one.pair:
            closest.setdefault(group, one)
    mutual = [one for one in found if all(closest[group] is one for group in one.pair)]
    return [one for one in mutual if not one.needs_both(alpha)]
