"""What a round gives the server: the participants' replies, their updates already summed or in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from ifca.core.sketch import Sketch
from ifca.core.types import ClusterSum, Params


class Part(NamedTuple):
    """Consecutive coordinates of one parameter, flattened."""

    name: str
    start: int
    width: int


class Updates(Protocol):
    """The updates of p participants. p x d numbers need not fit into memory: they come block by block."""

    def of(self, rows: Tensor) -> Updates:
        """Those of some participants, by their places among the p."""
        ...

    def layout(self, names: frozenset[str]) -> list[Part]:
        """The blocks of the named parameters, in the order in which they come."""
        ...

    def blocks(self, names: frozenset[str]) -> Iterator[Tensor]:
        """The values of each block of the layout: [p, width]. May be asked for again."""
        ...


Blocks = Callable[[], Iterator[Tensor]]
"""The changes of p clients, [p, b] each, from the first on; a rule may go through them more than once."""


@dataclass(frozen=True)
class Needs:
    """What a method must be given of each participant beside its identity; engines give no more."""

    losses: bool = False  # its loss under every model that it judged
    sketch: Sketch | None = None  # its update in a few numbers
    updates: bool = False  # its update itself
    aside: bool = False  # it trains without the samples that it sets aside to compare models by


class Rejection(NamedTuple):
    """A reply that is not used (core/checks.py)."""

    row: int  # whose, among those who were asked
    kind: str
    detail: str
    cluster: int = -1  # the model that it was to change; -1: not known


class Replies(NamedTuple):
    """The replies of the p participants of a round, in their order."""

    identity: Tensor  # [p] each one's cluster
    loss: Tensor  # [p] its loss under that cluster's model, before the update
    losses: Tensor | None  # [p, k] F_i(theta_j), NaN where not judged; None: not asked for, or nobody judged
    total: ClusterSum
    sketch: Tensor | None = None  # [p, q] the updates in a few numbers, where asked for
    updates: Updates | None = None  # where asked for
    answered: Tensor | None = None  # which participants replied; p counts only these. None: all of them
    carried: tuple[Tensor, Tensor] | None = None  # bytes down, up by client [m], measured; None: as counted
    clipped: Tensor | None = None  # [p] whose change was shortened, with differential privacy
    rejected: tuple[Rejection, ...] = ()  # replies that came and are not used


class Savings(NamedTuple):
    """What p clients lose more under each of q other models than under their own, on samples set aside.

    Sums over a client's samples, so that those of several clients add up.
    """

    samples: Tensor  # [p] how many
    total: Tensor  # [p, q] sum of f(other; z) - f(own; z)
    square: Tensor  # [p, q] sum of its squares
    answered: Tensor | None = None  # [p] who replied; the others' sums are zero. None: all
    carried: tuple[Tensor, Tensor] | None = None  # bytes down, up by client [m], measured; None: as counted


class Solutions(NamedTuple):
    """The clients' solutions of the probe (core/probe.py)."""

    theta: Params  # {"w": [m, d + 1, c]}
    answered: Tensor  # [m] who sent one
    bytes_down: Tensor  # [m]
    bytes_up: Tensor  # [m]


class Scores(NamedTuple):
    """Loss and number of right predictions of clients x models: [m, k]; [m, 1] where each has its own."""

    loss: Tensor
    correct: Tensor
    answered: Tensor | None = None  # [m] clients that replied; the others' scores are NaN. None: all
