"""The oracle: one client after the other. Slow, obvious, and what every other engine must equal."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ifca.core.attacks import Attack
from ifca.core.client import score
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs, Replies, Scores
from ifca.core.sampling import Plan, make_plan, on
from ifca.core.types import ClientReply, Params, Task, model_count, select
from ifca.data import Clients
from ifca.engines.attacked import attacking
from ifca.engines.base import SUMS
from ifca.engines.collect import Collected
from ifca.engines.memory_budget import DEFAULT_BUDGET
from ifca.methods.registry import method_of


class LoopEngine:
    """Lines 5 to 12 of Algorithm 2 as a for loop."""

    name = "loop"

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        clients: Clients,
        *,
        budget: int = DEFAULT_BUDGET,
        attack: Attack | None = None,
    ) -> None:
        self.task, self.recipe, self.clients, self.budget = task, recipe, clients, budget
        self.attack = attack
        self.client = method_of(recipe.algorithm).client

    def train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs = SUMS) -> Replies:
        """One turn of each participant."""

        def again(rows: Tensor) -> Iterator[tuple[Tensor, Params]]:
            for at, row in enumerate(rows.tolist()):
                reply = self._turn(theta, int(who[row]), known[row], t)
                yield torch.tensor([at]), _alone(reply).update

        sizes = self.clients.sizes[who.numpy()]
        attack = attacking(self.attack, self.recipe, theta, who, known, t)
        found = Collected(self.recipe, theta, sizes, known, needs, again, self.budget, attack)
        for row, (i, own) in enumerate(zip(who.tolist(), known, strict=True)):
            found.add(torch.tensor([row]), _alone(self._turn(theta, i, own, t)))
        return found.replies()

    def _turn(self, theta: Params, i: int, own: Tensor, t: int) -> ClientReply:
        """What client i does; own: the one model that it is sent, -1: all."""
        like = next(iter(theta.values()))
        data, model = self.clients.one(i, like.device, like.dtype), None if own < 0 else own.to(like.device)
        plan, step = self._plan(t, i, like), self.recipe.step(t)
        return self.client(self.task, self.recipe, step, theta, data, plan, model)

    def score(self, theta: Params, clients: Clients, own: Tensor | None = None) -> Scores:
        """Every client, every model (or its own)."""
        like = next(iter(theta.values()))
        rows = []
        for i in range(len(clients)):
            data = clients.one(i, like.device, like.dtype)
            models = range(model_count(theta)) if own is None else [int(own[i])]
            rows.append([torch.stack(score(self.task, select(theta, j), data)) for j in models])
        table = torch.stack([torch.stack(row) for row in rows]).cpu()  # [m, k, 2]
        return Scores(table[..., 0], table[..., 1])

    def fits(self, theta: Params) -> None:
        """One client at a time: there is no smaller way."""

    def _plan(self, t: int, i: int, like: Tensor) -> Plan:
        plan = make_plan(self.recipe, t, self.clients.keys[[i]], self.clients.sizes[[i]], self.task.draws)
        return on(Plan(*(None if part is None else part[0] for part in plan)), like.device)


def _alone(reply: ClientReply) -> ClientReply:
    """A client's reply as those of several clients are, with a leading dimension."""
    update = {name: value[None] for name, value in reply.update.items()}
    return ClientReply(reply.identity[None], reply.losses[None], update)
