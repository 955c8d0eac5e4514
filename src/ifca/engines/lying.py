"""Clients that lie when the server asks beside a round: for solutions, comparisons and held-out losses.

They say the opposite of what they found, as many times as strong as the attack is.
"""

from __future__ import annotations

from torch import Tensor

from ifca.core.attacks import Attack
from ifca.core.replies import Savings, Scores, Solutions
from ifca.core.types import Params
from ifca.engines.base import Engine
from ifca.engines.wrapped import Wrapped


class Lying(Wrapped):
    """An engine some of whose clients lie. Their turns are attacked where replies are collected."""

    def __init__(self, engine: Engine, attack: Attack) -> None:
        assert attack.strength is not None
        super().__init__(engine)
        self.rows, self.factor = list(attack.rows), attack.strength

    def score_aside(self, theta: Params, own: Tensor) -> Scores:
        """Held-out losses, the attackers' many times as large."""
        found = self.engine.score_aside(theta, own)
        loss = found.loss.clone()
        loss[self.rows] *= self.factor
        return found._replace(loss=loss)

    def solve(self) -> Solutions:
        """Solutions of the probe, the attackers' opposite."""
        found = self.engine.solve()
        theta = {name: value.clone() for name, value in found.theta.items()}
        for value in theta.values():
            value[self.rows] *= -self.factor
        return found._replace(theta=theta)

    def compare(
        self, theta: Params, who: Tensor, own: Tensor, others: Tensor, *, probes: bool = False
    ) -> Savings:
        """Comparisons, the attackers' opposite."""
        found = self.engine.compare(theta, who, own, others, probes=probes)
        liars = set(self.rows)
        rows = [row for row, i in enumerate(who.tolist()) if i in liars]
        return found._replace(
            total=multiplied(found.total, rows, -self.factor),
            square=multiplied(found.square, rows, self.factor**2),
        )


def multiplied(table: Tensor, rows: list[int], factor: float) -> Tensor:
    """The table with some rows multiplied."""
    found = table.clone()
    found[rows] *= factor
    return found
