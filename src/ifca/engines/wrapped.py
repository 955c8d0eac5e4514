"""An engine around another one: it hands on what it is asked; kinds of it change some of the answers."""

from __future__ import annotations

from torch import Tensor

from ifca.core.replies import Needs, Replies, Savings, Scores, Solutions
from ifca.core.types import Params
from ifca.data import Clients
from ifca.engines.base import SUMS, Engine


class Wrapped:
    """As the engine does, in everything."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.name = engine, engine.name

    def train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs = SUMS) -> Replies:
        """As the engine does."""
        return self.engine.train(theta, who, known, t, needs)

    def leave_out(self, who: Tensor) -> None:
        """As the engine does."""
        self.engine.leave_out(who)

    def fits(self, theta: Params) -> None:
        """As the engine does."""
        self.engine.fits(theta)

    def score(self, theta: Params, clients: Clients, own: Tensor | None = None) -> Scores:
        """As the engine does: whoever measures a simulation hears everybody, and the truth."""
        return self.engine.score(theta, clients, own)

    def score_aside(self, theta: Params, own: Tensor) -> Scores:
        """As the engine does."""
        return self.engine.score_aside(theta, own)

    def solve(self) -> Solutions:
        """As the engine does."""
        return self.engine.solve()

    def compare(
        self, theta: Params, who: Tensor, own: Tensor, others: Tensor, *, probes: bool = False
    ) -> Savings:
        """As the engine does."""
        return self.engine.compare(theta, who, own, others, probes=probes)
