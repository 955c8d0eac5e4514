"""The directions in which clients pull their models: Delta_i of single clients, for methods that cluster.

All p x d numbers of a round are never there at once. They come in blocks of coordinates (core/replies.py),
and what is kept of them are sums over the blocks: products of every two clients [p, p], or means of groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ifca.core.averages import running_statistics
from ifca.core.replies import Updates
from ifca.core.types import ClusterState, Params
from ifca.methods.method import Problem, Round

SMALLEST = 1e-300  # a length to divide by where there is none


@dataclass(frozen=True)
class Changes:
    """Delta_i = theta_i - theta of p participants: their model after training minus the one they were sent.

    Of option I it is what the gradient alone would change, -gamma g_i. Layers that all clusters share are no
    part of it, nor are running statistics of batch norm, which say where the data are and not where a client
    pulls.
    """

    updates: Updates
    theta: Params  # [k, ...]
    sent: Tensor  # [p] the number of the model that each was sent
    names: frozenset[str]  # of the parameters that clusters have for themselves (own_names)
    step: float | None  # gamma of option I; None: updates are models

    def of(self, rows: Tensor) -> Changes:
        """Those of some participants, by their places among the p."""
        return Changes(self.updates.of(rows), self.theta, self.sent[rows], self.names, self.step)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Delta in blocks of coordinates: where they are among the d, and [p, width] in double precision."""
        start_of = starts(self.theta, self.names)
        for (name, start, width), values in zip(
            self.updates.layout(self.names), self.updates.blocks(self.names), strict=True
        ):
            where = slice(start_of[name] + start, start_of[name] + start + width)
            if self.step is None:
                flat = self.theta[name].reshape(len(self.theta[name]), -1)[:, start : start + width]
                yield where, values.double() - flat.double()[self.sent.to(flat.device)]
            else:
                yield where, -self.step * values.double()

    def gram(self) -> Tensor:
        """The products of every two: [p, p]."""
        p = len(self.sent)
        return sum(((part @ part.T).cpu() for _, part in self.blocks()), torch.zeros(p, p).double())

    def mixed(self, share: Tensor) -> Tensor:
        """Weighted sums of them: share [g, p] -> [g, d], flat."""
        d = sum(value[0].numel() for name, value in self.theta.items() if name in self.names)
        found = torch.zeros(len(share), d, dtype=torch.float64)
        for where, part in self.blocks():
            found[:, where] = (share.to(part) @ part).cpu()
        return found

    def along(self, ways: Tensor) -> Tensor:
        """Their products with given directions: ways [g, d] -> [p, g]."""
        found = torch.zeros(len(self.sent), len(ways), dtype=torch.float64)
        for where, part in self.blocks():
            found += (part @ ways[:, where].to(part).T).cpu()
        return found


def starts(theta: Params, names: frozenset[str]) -> dict[str, int]:
    """Where each parameter begins in a flat direction: by name, as a checkpoint may bring another order."""
    found, start = {}, 0
    for name in sorted(names):
        found[name] = start
        start += theta[name][0].numel()
    return found


def changes_of(problem: Problem, state: ClusterState, now: Round) -> Changes:
    """Those of a round whose single updates were asked for (Needs.updates)."""
    assert now.replies.updates is not None
    step = problem.recipe.step(state.round) if problem.recipe.option == "gradient" else None
    names = own_names(problem, state.theta)
    return Changes(now.replies.updates, state.theta, now.replies.identity, names, step)


def kept(problem: Problem, before: ClusterState, after: ClusterState, places: Tensor) -> ClusterState:
    """The state with the models at some places [k] as they were before, whoever has trained them; but for
    layers that all share.
    """
    theta = {name: value.clone() for name, value in after.theta.items()}
    for name in theta.keys() - problem.shared:
        theta[name][places] = before.theta[name][places]
    return replace(after, theta=theta)


def own_names(problem: Problem, theta: Params) -> frozenset[str]:
    """Parameters that a cluster has for itself and that gradients move."""
    return frozenset(theta) - problem.shared - running_statistics(theta)


def own_numbers(problem: Problem, theta: Params) -> int:
    """d, how many numbers they are."""
    return sum(theta[name][0].numel() for name in own_names(problem, theta))


def own_part(problem: Problem, theta: Params, flat: Tensor) -> Tensor:
    """Their numbers among those of all entries but the shared ones. flat: [g, more than d] -> [g, d]."""
    start_of = starts(theta, frozenset(theta) - problem.shared)
    spans = [(start_of[name], theta[name][0].numel()) for name in sorted(own_names(problem, theta))]
    return torch.cat([flat[:, start : start + count] for start, count in spans], 1)


def cosines(gram: Tensor) -> Tensor:
    """Cosines of every two from their products [p, p]; one without a direction has cosine 0 to all."""
    length = gram.diagonal().clamp(min=0).sqrt().clamp(min=SMALLEST)
    return (gram / length[:, None] / length).clamp(-1, 1)
