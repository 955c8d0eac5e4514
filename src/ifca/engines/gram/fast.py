"""The vectorised engine's exact fast path: full-batch training of models that begin with a linear layer.

All k models judge a chunk of clients in one product; the local steps run in Gram space (gram_steps.py);
a cluster's new first layer is one product over its members. No client's first layer is ever stored.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.attacks import Attack
from ifca.core.averages import fold, zero_sum
from ifca.core.identity import identity, one_hot
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs, Replies, Scores
from ifca.core.sketch import Sketch
from ifca.core.types import ClusterSum, Params, Task, model_count
from ifca.data import Clients
from ifca.engines.attacked import Found, attacking
from ifca.engines.base import SUMS
from ifca.engines.covered import not_exact
from ifca.engines.cuda import fused
from ifca.engines.gram.chunks import CACHE_ROWS, Chunk, Grams, load, places
from ifca.engines.gram.first_layers import FirstLayers, Turn
from ifca.engines.gram.gram_steps import Scratch, has_factors, local_steps, make_signal
from ifca.engines.gram.judge import Judge
from ifca.engines.memory_budget import DEFAULT_BUDGET, ChunkLimit, chunk_size
from ifca.engines.updates import add_updates
from ifca.methods.aggregation import aggregated, client_weights, rule_of, weighs
from ifca.methods.registry import method_of, sends_models, shared_parameters


def applies(task: Task, recipe: Recipe) -> bool:
    """The paper's turn, plain steps on whole data, and a linear first layer that no regulariser touches."""
    return not not_exact(task, recipe)


class FastEngine:
    """The same results as the loop, to rounding, with a fraction of its arithmetic."""

    name = "vectorised"

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        clients: Clients,
        *,
        budget: int = DEFAULT_BUDGET,
        chunk: int | None = None,
        attack: Attack | None = None,
    ) -> None:
        assert task.first is not None
        self.task, self.recipe, self.clients, self.first = task, recipe, clients, task.first
        self.budget, self._limit = budget, ChunkLimit(chunk)
        self.kept_bytes = budget // 4  # of single updates
        self.attack = attack
        self.rule, self.weighs = rule_of(recipe), weighs(recipe)
        self.judges = method_of(recipe.algorithm).chooses
        self._fused: fused.FusedRound | None = None
        self._scratch = Scratch()
        self._judge = Judge(task, task.first, self._scratch)
        self._signal = make_signal(task, task.first, self._scratch)
        self._grams = Grams(clients, bias=task.first.bias is not None, budget=budget // 2)

    def train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs = SUMS) -> Replies:
        """The turns of all participants: on a GPU all at once where that is possible, else chunk by chunk."""
        device = theta[self.first.weight].device
        attacks = self.attack is not None and self.attack.kind.in_round
        single = needs.updates or not self.rule.additive or attacks
        if len(who) == len(self.clients) and not single and self._fuses(theta, device):
            self._fused = self._fused or fused.FusedRound(self.task, self.recipe, self.clients, device)
            j, losses, total, drawn = self._fused(theta, known, self.recipe.step(t), needs.sketch)
            own, asked = losses.gather(1, j[:, None])[:, 0], (known < 0)[:, None]
            seen = torch.where(asked | one_hot(j, losses.shape[1]), losses, torch.nan)
            return Replies(j, own, seen if needs.losses and bool(asked.any()) else None, total, drawn)
        return self._limit.run(lambda: self._train(theta, who, known, t, needs))

    def _train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs) -> Replies:
        k, like, sketch = model_count(theta), theta[self.first.weight], needs.sketch
        found, loss = torch.empty(len(who), dtype=torch.long), torch.empty(len(who), dtype=like.dtype)
        judged = needs.losses and bool((known < 0).any())
        attack = attacking(self.attack, self.recipe, theta, who, known, t)
        losses = torch.full((len(who), k), torch.nan, dtype=like.dtype) if judged or attack else None
        drawn = None if sketch is None else torch.empty(len(who), sketch.width, dtype=like.dtype)
        total, weight = zero_sum(theta), client_weights(self.recipe, self.clients.sizes[who.numpy()], like)
        folds = self.rule.additive and attack is None
        single = needs.updates or not folds

        def again(rows: Tensor) -> Iterator[tuple[Tensor, Turn]]:
            return self._turns(theta, who[rows], found[rows], t)

        def data(rows: Tensor) -> Chunk:
            return load(self.clients, who[rows].numpy(), like, self._scratch)

        kept = FirstLayers(self.first, theta, len(who), self.kept_bytes, again, data) if single else None
        with torch.no_grad():
            for place, turn in self._turns(theta, who, known, t):
                found[place] = turn.identity.cpu()
                loss[place] = turn.losses.gather(1, turn.identity[:, None])[:, 0].cpu()
                if losses is not None:
                    losses[place] = turn.losses.cpu()
                if folds:
                    self._fold(total, theta, turn, weight[place.to(weight.device)])
                if kept is not None:
                    kept.add(place, turn)
                if sketch is not None and drawn is not None:
                    drawn[place] = self._drawn(sketch, theta, turn).cpu()
            updates = None if kept is None else kept.updates()
            said = found  # the turns themselves are taken again by what was found
            if attack is not None and updates is not None and losses is not None:
                lie = attack.on(Found(found, losses, updates, drawn), sketch)
                said, losses, updates, drawn = lie
                loss = lie.loss
            if updates is not None and not self.rule.additive:
                shared = shared_parameters(self.recipe, list(theta))
                models = sends_models(self.recipe)
                total = aggregated(self.rule, theta, updates, said, weight, shared, models=models)
            elif updates is not None and not folds:
                add_updates(total, updates, said, weight)
        return Replies(
            said, loss, losses if judged else None, total, drawn, updates if needs.updates else None
        )

    def _turns(self, theta: Params, who: Tensor, known: Tensor, t: int) -> Iterator[tuple[Tensor, Turn]]:
        """The turns of a chunk at a time, with its places among those who take part."""
        like, asked, wide = theta[self.first.weight], known < 0, self._judge.side_by_side(theta)
        sizes = torch.from_numpy(self.clients.sizes)[who]
        for place in places(sizes, asked, known, self._fitting(theta, int(sizes.max()), len(who))):
            data = load(self.clients, who[place].numpy(), like, self._scratch)
            if asked[place[0]]:
                z = self._judge.products(wide, data)  # [b, n, k, h]: one product for all models
                table, _ = self._judge.losses(theta, z.flatten(0, 1).transpose(0, 1), data, count=False)
                j = identity(table)
                z = z[torch.arange(len(j), device=j.device), :, j]
            else:
                j = known[place].to(like.device)
                own, _, z = self._judge.own(theta, data, j)
                table = torch.where(one_hot(j, model_count(theta)), own[:, None], torch.nan)
            yield place, self._turn(theta, who[place].numpy(), data, j, table, z, self.recipe.step(t))

    def _turn(
        self,
        theta: Params,
        members: NDArray[np.int64],
        data: Chunk,
        j: Tensor,
        losses: Tensor,
        z: Tensor,
        step: float,
    ) -> Turn:
        """Gradients or local steps of one chunk."""
        rest = {name: value[j] for name, value in self._judge.rest(theta).items()}
        if self.recipe.option == "gradient":
            s, rest = self._signal(rest, z, data.y, data.weight)
            return Turn(j, losses, data, s, rest, None)
        s, g = self._scratch.take("s", z.shape, z), self._grams.of(members, data)
        local_steps(self._signal, rest, z, g, data.y, data.weight, step, self.recipe.local_steps, s)
        return Turn(j, losses, data, s, rest, step)

    def _fold(self, total: ClusterSum, theta: Params, turn: Turn, weight: Tensor) -> None:
        """Add sum over i of s_ij w_i update_i; a cluster's first layers are ONE product over its members."""
        j, data, s = turn.identity, turn.data, turn.s
        fold(total, j, turn.rest, weight)
        if self.weighs:
            s = s * weight[:, None, None]
        for cluster in sorted(set(j.tolist())):
            mine = torch.nonzero(j == cluster)[:, 0]
            x_j, s_j = (
                (data.x, s)
                if len(mine) == len(j)
                else (self._some("x_j", data.x, mine), self._some("s_j", s, mine))
            )
            slopes = {self.first.weight: (s_j.flatten(0, 1).t() @ x_j.flatten(0, 1)) * data.scale}
            if self.first.bias is not None:
                slopes[self.first.bias] = s_j.sum((0, 1))
            for name, slope in slopes.items():
                if turn.step is not None:  # W_i = W_j - gamma S_i'X_i, summed over the members
                    total.total[name][cluster] += weight[mine].sum().double() * theta[name][cluster]
                    slope = -turn.step * slope
                total.total[name][cluster] += slope

    def _drawn(self, sketch: Sketch, theta: Params, turn: Turn) -> Tensor:
        """Each client's update in a few numbers, its first layer never formed: [b, q]."""
        data, s, step = turn.data, turn.s, turn.step
        moved = {n: v if step is None else v - theta[n][turn.identity] for n, v in turn.rest.items()}
        first = sketch.outer(self.first.weight, s, data.x) * data.scale
        if self.first.bias is not None:
            first = first + sketch.part(self.first.bias, s.sum(1))
        first = first if step is None else -step * first
        return first + sketch.of(moved) if moved else first

    def score(self, theta: Params, clients: Clients, own: Tensor | None = None) -> Scores:
        """Every client, every model (or its own)."""
        return self._limit.run(lambda: self._score(theta, clients, own))

    def _score(self, theta: Params, clients: Clients, own: Tensor | None) -> Scores:
        like, everyone = theta[self.first.weight], torch.arange(len(clients))
        columns = model_count(theta) if own is None else 1
        loss, correct = (torch.empty(len(clients), columns, dtype=like.dtype) for _ in range(2))
        wide = self._judge.side_by_side(theta) if own is None else None
        sizes, asked = torch.from_numpy(clients.sizes), torch.full((len(clients),), own is None)
        chunk = self._fitting(theta, int(sizes.max()), len(clients))
        with torch.no_grad():
            for place in places(sizes, asked, everyone if own is None else own, chunk):
                data = load(clients, place.numpy(), like, self._scratch)
                if wide is not None:
                    z = self._judge.products(wide, data)
                    one, right = self._judge.losses(theta, z.flatten(0, 1).transpose(0, 1), data, count=True)
                elif own is not None:
                    one, right, _ = (
                        part[:, None] for part in self._judge.own(theta, data, own[place].to(like.device))
                    )
                loss[place], correct[place] = one.cpu(), right.cpu()
        return Scores(loss, correct)

    def fits(self, theta: Params) -> None:
        """Refuse a memory budget that is too small for the largest client."""
        self._fitting(theta, int(self.clients.sizes.max()), len(self.clients))

    def _some(self, name: str, values: Tensor, which: Tensor) -> Tensor:
        """Some clients of a chunk, in memory that is used again."""
        out = self._scratch.take(name, (len(which), *values.shape[1:]), values)
        return torch.index_select(values, 0, which, out=out)

    def _fuses(self, theta: Params, device: torch.device) -> bool:
        alone = model_count(theta) == len(self.clients)  # a model each: nobody judges the others'
        if theta[self.first.weight].dtype != torch.float32 or alone:
            return False
        if not fused.applies(self.task, self.recipe, self.clients, device):
            return False
        return fused.bytes_needed(self.clients, theta[self.first.weight].shape) <= self.budget

    def _fitting(self, theta: Params, rows: int, count: int) -> int:
        """Clients of a chunk: within half of the budget (Gram matrices have the other), in cache on a CPU."""
        k, h, d = theta[self.first.weight].shape
        rest = sum(value[0].numel() for value in self._judge.rest(theta).values())
        judged = min(k, count) if self.judges else 1
        gram = d * h if has_factors(rows, d) else rows * rows
        one = theta[self.first.weight].element_size() * (
            rows * (d + 2 * judged * h + 5 * h) + gram + 4 * rest
        )
        size = chunk_size(self.budget, 2 * one, rows, count)
        on_cpu = theta[self.first.weight].device.type == "cpu"
        return self._limit.cap(min(size, max(1, CACHE_ROWS // rows)) if on_cpu else size)
