"""An engine whose clients are dealt to several processes: each maps turns over its own, sums are added up.

The server's code runs on every rank, with the same numbers. A round costs one all-reduce: the sums by
cluster, and a row of each participant. What would need single updates of clients elsewhere is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ifca.core.averages import zero_sum
from ifca.core.errors import IFCAError, InvalidInput
from ifca.core.replies import Needs, Replies, Savings, Scores, Solutions
from ifca.core.types import ClusterSum, Params, model_count
from ifca.data import Clients
from ifca.engines.base import SUMS, Engine
from ifca.engines.ranks import Parts, Ranks

SINGLE = (
    "needs what single clients send, and over ranks only sums are put together: start it without torchrun"
)
Found = TypeVar("Found")


class DistributedEngine:
    """The engine of a rank's own clients, and the others' beside it."""

    def __init__(self, ranks: Ranks, engine: Engine, clients: Clients, mine: Clients) -> None:
        """clients: all of them, as the job has them, with or without data; mine: those of this rank."""
        self.ranks, self.engine, self.name = ranks, engine, engine.name
        self._clients, self._mine = clients, mine
        self._shares = ranks.shares(clients.sizes)
        self._own = torch.from_numpy(self._shares[ranks.rank])
        self._place = torch.full((len(clients),), -1)  # of each client among the rank's own
        self._place[self._own] = torch.arange(len(self._own))

    def train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs = SUMS) -> Replies:
        """Round t: the turns of the rank's own clients; the replies of all."""
        if needs.updates:
            raise InvalidInput(f"this method {SINGLE}")
        k, like, rows = model_count(theta), next(iter(theta.values())), self._rows(who)
        judged = needs.losses and bool((known < 0).any())
        alone, signature = _alone(known, k), _signature(theta, who, known)

        def turns() -> Replies:
            return self.engine.train(theta, self._place[who[rows]], known[rows], t, needs)

        found, failed = _tried(turns) if len(rows) else (None, None)
        parts: Parts = {
            "failed": torch.tensor([float(failed is not None)]),
            "said": torch.tensor([signature * self.ranks.leads], dtype=torch.float64),
            "identity": torch.zeros(len(who), dtype=torch.long),
            "loss": torch.zeros(len(who), dtype=like.dtype),
        }
        if judged:
            parts["losses"] = torch.zeros(len(who), k, dtype=like.dtype)
        if needs.sketch is not None:
            parts["sketch"] = torch.zeros(len(who), needs.sketch.width, dtype=like.dtype)
        if found is not None:
            parts["identity"][rows], parts["loss"][rows] = found.identity, found.loss
            if judged:
                parts["losses"][rows] = _losses_of(found, k)
            if found.sketch is not None:
                parts["sketch"][rows] = found.sketch.to(like.dtype)
        total = zero_sum(theta) if found is None else found.total
        if not alone:
            # double on all ranks: one that heard single clients alone has them as they were sent
            parts |= {f"total.{name}": value.double() for name, value in total.total.items()}
        heard = self._heard(parts | {"weight": total.weight}, failed)
        if int(heard["said"]) != signature:
            raise IFCAError("the ranks do not agree on the models: are their machines and versions the same?")
        sums = (
            self._of_all(total.total, known, who)
            if alone
            else {name: heard[f"total.{name}"] for name in theta}
        )
        return Replies(
            heard["identity"],
            heard["loss"],
            heard.get("losses"),
            ClusterSum(sums, heard["weight"]),
            heard.get("sketch"),
        )

    def _rows(self, who: Tensor) -> Tensor:
        """The places among some clients of those that are the rank's own."""
        return torch.nonzero(self._place[who] >= 0)[:, 0]

    def _heard(self, parts: Parts, failed: IFCAError | None) -> Parts:
        """The sums of all ranks; what went wrong on one ends all, and that rank says it."""
        heard = self.ranks.summed(parts)
        if failed is not None:
            raise failed
        if float(heard["failed"]) > 0:
            raise IFCAError("another rank of this run could not go on; it says why")
        return heard

    def _of_all(self, total: Params, known: Tensor, who: Tensor) -> Params:
        """Models of single clients, of all ranks: nothing is summed, so rows are enough. known: [p]."""
        whose = [known[np.isin(who.numpy(), share)].numpy() for share in self._shares]
        mine = known[self._rows(who)]
        return {
            name: self.ranks.rows(value[mine.to(value.device)], [np.asarray(some) for some in whose])
            for name, value in total.items()
        }

    def fits(self, theta: Params) -> None:
        """Refuse a memory budget that is too small for the largest client of this rank."""
        self.engine.fits(theta)

    def leave_out(self, who: Tensor) -> None:
        """Nobody is rejected over ranks (training/dealt_clients.py)."""

    def score(self, theta: Params, clients: Clients, own: Tensor | None = None) -> Scores:
        """Every rank judges its part of the clients: its own, or of others than it trains every so many."""
        if clients is self._clients:
            mine = self._own
            found = self.engine.score(theta, self._mine, None if own is None else own[mine])
        else:
            mine = torch.from_numpy(self.ranks.shares(clients.sizes)[self.ranks.rank])
            some = clients.subset(mine.numpy()) if len(mine) else None
            columns = model_count(theta) if own is None else 1
            empty = Scores(*(torch.empty(0, columns) for _ in range(2)))
            found = (
                empty if some is None else self.engine.score(theta, some, None if own is None else own[mine])
            )
        return self._spread(found, mine, len(clients))

    def score_aside(self, theta: Params, own: Tensor) -> Scores:
        """The same on samples set aside."""
        return self._spread(self.engine.score_aside(theta, own[self._own]), self._own, len(own))

    def _spread(self, found: Scores, mine: Tensor, m: int) -> Scores:
        """The scores of all m clients. mine: whose this rank's are."""
        parts = {
            name: table.new_zeros(m, table.shape[1]).index_copy(0, mine, table)
            for name, table in (("loss", found.loss), ("correct", found.correct))
        }
        return Scores(**self.ranks.summed(parts))

    def solve(self) -> Solutions:
        """Every client's solution of the probe."""
        found = self.engine.solve()
        theta = {name: self.ranks.rows(value, self._shares) for name, value in found.theta.items()}
        names = ("answered", "bytes_down", "bytes_up")
        rest = [self.ranks.rows(getattr(found, name).long(), self._shares) for name in names]
        return Solutions(theta, rest[0].bool(), *rest[1:])

    def compare(
        self, theta: Params, who: Tensor, own: Tensor, others: Tensor, *, probes: bool = False
    ) -> Savings:
        """What clients say of models on samples that they set aside."""
        rows, parts = self._rows(who), {"samples": torch.zeros(len(who), dtype=torch.long)}
        for name in ("total", "square"):
            parts[name] = torch.zeros(len(who), others.shape[1], dtype=torch.float64)
        if len(rows):
            found = self.engine.compare(theta, self._place[who[rows]], own[rows], others[rows], probes=probes)
            for name, part in parts.items():
                part[rows] = getattr(found, name)
        heard = self.ranks.summed(parts)
        return Savings(heard["samples"], heard["total"], heard["square"])


def _tried(work: Callable[[], Found]) -> tuple[Found | None, IFCAError | None]:
    """What it gives, or what went wrong: the other ranks wait for either."""
    try:
        return work(), None
    except IFCAError as reason:
        return None, reason


def _alone(known: Tensor, k: int) -> bool:
    """Whether every participant has a model of its own: there are no sums."""
    return k > 1 and bool((known >= 0).all()) and len(known) == k and len(torch.unique(known)) == k


def _losses_of(found: Replies, k: int) -> Tensor:
    """Losses under the models that were judged; where none of this rank judged all, under each one's own."""
    if found.losses is not None:
        return found.losses
    table = found.loss.new_full((len(found.loss), k), torch.nan)
    return table.scatter(1, found.identity[:, None], found.loss[:, None])


def _signature(theta: Params, who: Tensor, known: Tensor) -> int:
    """A number of what the ranks must agree on."""
    found = 0
    for value in (who, known, *theta.values()):
        found = zlib.crc32(
            value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, found
        )
    return found
