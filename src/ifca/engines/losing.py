"""Clients whose replies never come (lost_replies): they are asked, and the server hears nothing of them."""

from __future__ import annotations

import torch
from torch import Tensor

from ifca.core.recipe import Recipe
from ifca.core.replies import Needs, Replies, Savings, Scores, Solutions
from ifca.core.sampling import is_lost
from ifca.core.types import Params
from ifca.data import Clients
from ifca.engines.base import SUMS, Engine
from ifca.engines.wrapped import Wrapped

FOUNDING = -1  # the round of what is asked before the first one


class Losing(Wrapped):
    """An engine that hears some clients only; who is lost in a round is lost to all that is asked in it."""

    def __init__(self, engine: Engine, recipe: Recipe, clients: Clients) -> None:
        super().__init__(engine)
        self.recipe, self.keys, self.round = recipe, clients.keys, FOUNDING

    def train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs = SUMS) -> Replies:
        """The replies of those who are heard."""
        self.round = t
        answered = self._heard(who)
        rows = torch.nonzero(answered)[:, 0]
        replies = self.engine.train(theta, who[rows], known[rows], t, needs)
        rejected = tuple(one._replace(row=int(rows[one.row])) for one in replies.rejected)
        if replies.answered is not None:
            answered[rows] = replies.answered
        return replies._replace(answered=answered, rejected=rejected)

    def score_aside(self, theta: Params, own: Tensor) -> Scores:
        """Held-out losses of those who are heard."""
        found, lost = self.engine.score_aside(theta, own), ~self._heard(torch.arange(len(own)))
        return found._replace(loss=found.loss.masked_fill(lost[:, None], torch.nan))

    def solve(self) -> Solutions:
        """Solutions of those who are heard."""
        found = self.engine.solve()
        return found._replace(answered=found.answered & self._heard(torch.arange(len(found.answered))))

    def compare(
        self, theta: Params, who: Tensor, own: Tensor, others: Tensor, *, probes: bool = False
    ) -> Savings:
        """Comparisons of those who are heard; the others' sums are zero."""
        found, heard = self.engine.compare(theta, who, own, others, probes=probes), self._heard(who)
        total, square = (table.masked_fill(~heard[:, None], 0) for table in (found.total, found.square))
        return found._replace(samples=found.samples * heard, total=total, square=square, answered=heard)

    def _heard(self, who: Tensor) -> Tensor:
        return torch.from_numpy(~is_lost(self.recipe, self.round, self.keys[who.numpy()]))
