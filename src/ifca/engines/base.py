"""What an engine is: it decides how a client function is mapped over clients, and nothing else."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ifca.core.replies import Needs, Replies, Scores
from ifca.core.types import Params
from ifca.data import Clients

SUMS = Needs()
"""Nothing beside the sums."""


class Engine(Protocol):
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
