"""The oracle: one client after the other. Slow, obvious, and what every other engine must equal."""

from __future__ import annotations

import torch
from torch import Tensor

from ifca.core.averages import fold, zero_sum
from ifca.core.client import change, client_round, score
from ifca.core.recipe import Recipe
from ifca.core.sampling import Plan, make_plan, on
from ifca.core.sketch import Sketch
from ifca.core.types import Params, Task, model_count, select
from ifca.data import Clients
from ifca.engines.base import Replies, Scores


class LoopEngine:
    """Lines 5 to 12 of Algorithm 2 as a for loop."""

    name = "loop"

    def __init__(self, task: Task, recipe: Recipe, clients: Clients) -> None:
        self.task, self.recipe, self.clients = task, recipe, clients

    def train(
        self, theta: Params, who: Tensor, known: Tensor, t: int, sketch: Sketch | None = None
    ) -> Replies:
        """One turn of each participant."""
        like = next(iter(theta.values()))
        total, step = zero_sum(theta), self.recipe.step(t)
        identities, losses, sketches = [], [], []
        for i, own in zip(who.tolist(), known, strict=True):
            data = self.clients.one(i, like.device, like.dtype)
            model = None if own < 0 else own.to(like.device)
            reply = client_round(self.task, self.recipe, step, theta, data, self._plan(t, i, like), model)
            weight = like.new_tensor([len(data.x) if self.recipe.weighted else 1])
            fold(total, reply.identity[None], {n: g[None] for n, g in reply.update.items()}, weight)
            identities.append(reply.identity)
            losses.append(reply.losses)
            if sketch is not None:
                moved = change(self.recipe, theta, reply)
                sketches.append(sketch.of({name: value[None] for name, value in moved.items()})[0])
        identity, table = torch.stack(identities).cpu(), torch.stack(losses).cpu()
        own_loss = table.gather(1, identity[:, None])[:, 0]
        seen = table if bool((known < 0).any()) else None
        return Replies(identity, own_loss, seen, total, torch.stack(sketches).cpu() if sketches else None)

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
        plan = make_plan(self.recipe, t, self.clients.keys[[i]], self.clients.sizes[[i]])
        return on(Plan(*(None if part is None else part[0] for part in plan)), like.device)
