"""What an engine is: it decides how a client function is mapped over clients, and nothing else."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from ifca.core.sketch import Sketch
from ifca.core.types import ClusterSum, Params
from ifca.data import Clients


class Replies(NamedTuple):
    """The replies of the p participants of a round, in their order; their updates already summed."""

    identity: Tensor  # [p] each one's cluster
    loss: Tensor  # [p] its loss under that cluster's model, before the update
    losses: Tensor | None  # [p, k] F_i(theta_j), NaN where not sent; None: nobody was sent all k
    total: ClusterSum
    sketch: Tensor | None = None  # [p, q] the updates in a few numbers, where asked for
    answered: Tensor | None = None  # which participants replied; p counts only these. None: all of them
    carried: tuple[Tensor, Tensor] | None = None  # bytes down, up by client [m], measured; None: as counted


class Scores(NamedTuple):
    """Loss and number of right predictions of clients x models: [m, k]; [m, 1] where each has its own."""

    loss: Tensor
    correct: Tensor
    answered: Tensor | None = None  # [m] clients that replied; the others' scores are NaN. None: all


class Engine(Protocol):
    """Maps the client function over the training clients it was made with."""

    name: str

    def train(
        self, theta: Params, who: Tensor, known: Tensor, t: int, sketch: Sketch | None = None
    ) -> Replies:
        """Round t for the clients who: [p]; known: [p] the one model each is sent, or -1: all k."""
        ...

    def fits(self, theta: Params) -> None:
        """Refuse a memory budget that is too small for the largest client."""
        ...

    def score(self, theta: Params, clients: Clients, own: Tensor | None = None) -> Scores:
        """Judge all k models on all clients, or on each client only the model own[i]."""
        ...
