"""What an engine is: it decides how a client function is mapped over clients, and nothing else."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ifca.core.replies import Needs, Replies, Savings, Scores, Solutions
from ifca.core.types import Params
from ifca.data import Clients

SUMS = Needs()
"""Nothing beside the sums."""


class TurnEngine(Protocol):
    """Maps the client function over the training clients it was made with."""

    name: str

    def train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs = SUMS) -> Replies:
        """Round t for the clients who: [p]; known: [p] the one model each is sent, or -1: all k."""
        ...

    def fits(self, theta: Params) -> None:
        """Refuse a memory budget that is too small for the largest client."""
        ...

    def score(self, theta: Params, clients: Clients, own: Tensor | None = None) -> Scores:
        """Judge all k models on all clients, or on each client only the model own[i]."""
        ...


class Engine(TurnEngine, Protocol):
    """One whose clients can also set samples aside (engines/aside.py)."""

    def score_aside(self, theta: Params, own: Tensor) -> Scores:
        """Judge on each client only the model own[i], on the samples that it set aside; NaN: it has none."""
        ...

    def leave_out(self, who: Tensor) -> None:
        """Ask clients who [m] nothing any more: their replies were rejected too often."""
        ...

    def solve(self) -> Solutions:
        """Every client's solution of the probe (core/probe.py), without the samples that it sets aside."""
        ...

    def compare(
        self, theta: Params, who: Tensor, own: Tensor, others: Tensor, *, probes: bool = False
    ) -> Savings:
        """What clients who [p] lose more under the models others [p, q] than under own [p], on samples that
        they set aside. theta: any models [a, ...], or probes; own, others: numbers among them.
        """
        ...
