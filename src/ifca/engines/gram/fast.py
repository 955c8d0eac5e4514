"""The vectorised engine's exact fast path: full-batch training of models that begin with a linear layer.

All k models judge a chunk of clients in one product; the local steps run in Gram space (gram_steps.py);
a cluster's new first layer is one product over its members. No client's first layer is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.attacks import Attack
from ifca.core.averages import zero_sum
from ifca.core.buckets import widths
from ifca.core.identity import identity, one_hot
from ifca.core.optimisers import optimiser_of
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs, Replies, Scores
from ifca.core.sampling import make_plan
from ifca.core.types import Params, Task, model_count
from ifca.data import Clients
from ifca.engines.attacked import Found, attacking
from ifca.engines.base import SUMS
from ifca.engines.covered import not_exact
from ifca.engines.cuda import fused
from ifca.engines.gram.batch_steps import batch_gradient, batch_steps
from ifca.engines.gram.chunks import CACHE_ROWS, Chunk, Grams, load, places, spare_rows
from ifca.engines.gram.clipped_turns import clipped
from ifca.engines.gram.cluster_sums import ClusterSums
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
        self.rule, self.judges = rule_of(recipe), method_of(recipe.algorithm).chooses
        self._fused: fused.FusedRound | None = None
        self._kernels: dict[torch.Size, bool] = {}
        self._scratch, self._how = Scratch(), optimiser_of(recipe)
        self._judge = Judge(task, task.first, self._scratch)
        self._signal = make_signal(task, task.first, self._scratch)
        self._sums = ClusterSums(task.first, self._scratch, weighs=weighs(recipe))
        self._buckets: tuple[NDArray[np.int64], Grams] | None = None

    def train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs = SUMS) -> Replies:
        """The turns of all participants: on a GPU all at once where that is possible, else chunk by chunk."""
        device = theta[self.first.weight].device
        attacks = self.attack is not None and self.attack.kind.in_round
        single = needs.updates or not self.rule.additive or attacks
        if len(who) and not single and self._fuses(theta, device):
            self._fused = self._fused or fused.FusedRound(self.task, self.recipe, self.clients, device)
            j, losses, total, drawn = self._fused(theta, who, known, self.recipe.step(t), needs.sketch)
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
        weight = client_weights(self.recipe, self.clients.sizes[who.numpy()], like)
        folds = self.rule.additive and attack is None
        alone = folds and self._alone(theta, known)
        total = zero_sum(theta, like.dtype if alone else torch.float64)
        single = needs.updates or not folds
        long = torch.zeros(len(who), dtype=torch.bool) if self.recipe.private else None

        def again(rows: Tensor) -> Iterator[tuple[Tensor, Turn]]:
            return self._turns(theta, who[rows], found[rows], t)

        def data(rows: Tensor) -> Chunk:
            some = who[rows].numpy()
            return load(self.clients, some, int(self._width(like)[0][some].max()), like, self._scratch)

        kept = FirstLayers(self.first, theta, len(who), self.kept_bytes, again, data) if single else None
        with torch.no_grad():
            for place, turn in self._turns(theta, who, known, t):
                found[place] = turn.identity.cpu()
                loss[place] = turn.losses.gather(1, turn.identity[:, None])[:, 0].cpu()
                if losses is not None:
                    losses[place] = turn.losses.cpu()
                if long is not None and turn.clipped is not None:
                    long[place] = turn.clipped
                if alone:
                    self._sums.add_alone(total, theta, turn)
                elif folds:
                    self._sums.add(total, theta, turn, weight[place.to(weight.device)])
                if kept is not None:
                    kept.add(place, turn)
                if sketch is not None and drawn is not None:
                    drawn[place] = self._sums.drawn(sketch, theta, turn).cpu()
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
        seen, single_updates = losses if judged else None, updates if needs.updates else None
        return Replies(said, loss, seen, total, drawn, single_updates, clipped=long)

    def _turns(self, theta: Params, who: Tensor, known: Tensor, t: int) -> Iterator[tuple[Tensor, Turn]]:
        """The turns of a chunk at a time, with its places among those who take part."""
        like, asked, layers = theta[self.first.weight], known < 0, self._judge.side_by_side(theta)
        wide, step = (self.clients.sizes, self._width(like)[0]), self.recipe.step(t)
        sizes, width = (torch.from_numpy(part)[who] for part in wide)
        for place in places(width, sizes, asked, known, self._fitting(theta, len(who))):
            members = who[place].numpy()
            data = load(self.clients, members, int(width[place[0]]), like, self._scratch)
            if asked[place[0]]:
                z = self._judge.products(layers, data)  # [b, n, k, h]: one product for all models
                table, _ = self._judge.losses(theta, z.flatten(0, 1).transpose(0, 1), data, count=False)
                j = identity(table)
                z = z[torch.arange(len(j), device=j.device), :, j]
            else:
                j = known[place].to(like.device)
                own, _, z = self._judge.own(theta, data, j)
                table = torch.where(one_hot(j, model_count(theta)), own[:, None], torch.nan)
            plan = make_plan(self.recipe, t, self.clients.keys[members], self.clients.sizes[members])
            yield place, self._turn(theta, members, data, j, table, z, step, plan.steps)

    def _turn(
        self,
        theta: Params,
        members: NDArray[np.int64],
        data: Chunk,
        j: Tensor,
        losses: Tensor,
        z: Tensor,
        step: float,
        rows: Tensor | None,
    ) -> Turn:
        """Gradients or local steps of one chunk. rows: of mini-batches [b, steps, batch]; None: all."""
        rest = {name: value[j] for name, value in self._judge.rest(theta).items()}
        gradient = self.recipe.option == "gradient"
        s = self._scratch.take("s", z.shape, z)
        grams = self._width(z)[1]
        g = grams.factors(data) if gradient else grams.of(members, data)
        if gradient and rows is None:
            s, rest = self._signal(rest, z, data.y, data.weight)
        elif rows is None:
            chunk, tau = (z, g, data.y, data.weight), self.recipe.local_steps
            local_steps(self._signal, rest, *chunk, step, tau, s, how=self._how, scratch=self._scratch)
        elif gradient:
            rest = batch_gradient(self._signal, rest, z, data.y, rows.to(z.device), s)
        else:
            batch_steps(self._signal, rest, z, g, data.y, rows.to(z.device), step, s)
        turn = Turn(j, losses, data, s, rest, None if gradient else step)
        return clipped(self.recipe, theta, turn, g) if self.recipe.private else turn

    def score(self, theta: Params, clients: Clients, own: Tensor | None = None) -> Scores:
        """Every client, every model (or its own)."""
        return self._limit.run(lambda: self._score(theta, clients, own))

    def _score(self, theta: Params, clients: Clients, own: Tensor | None) -> Scores:
        like, everyone = theta[self.first.weight], torch.arange(len(clients))
        columns = model_count(theta) if own is None else 1
        loss, correct = (torch.empty(len(clients), columns, dtype=like.dtype) for _ in range(2))
        layers = self._judge.side_by_side(theta) if own is None else None
        asked, model = torch.full((len(clients),), own is None), everyone if own is None else own
        wide = clients.sizes, widths(clients.sizes, spare_rows(like.device))
        sizes, width = (torch.from_numpy(part) for part in wide)
        with torch.no_grad():
            for place in places(width, sizes, asked, model, self._fitting(theta, len(asked))):
                data = load(clients, place.numpy(), int(width[place[0]]), like, self._scratch)
                if layers is not None:
                    z = self._judge.products(layers, data)
                    one, right = self._judge.losses(theta, z.flatten(0, 1).transpose(0, 1), data, count=True)
                elif own is not None:
                    one, right, _ = (
                        part[:, None] for part in self._judge.own(theta, data, own[place].to(like.device))
                    )
                loss[place], correct[place] = one.cpu(), right.cpu()
        return Scores(loss, correct)

    def fits(self, theta: Params) -> None:
        """Refuse a memory budget that is too small for the largest client."""
        self._fitting(theta, len(self.clients))(int(self.clients.sizes.max()))

    def _width(self, like: Tensor) -> tuple[NDArray[np.int64], Grams]:
        """What each client is padded to [m], and the Gram matrices of clients that are padded so."""
        if self._buckets is None:
            width = widths(self.clients.sizes, spare_rows(like.device))
            grams = Grams(width, bias=self.first.bias is not None, budget=self.budget // 2)
            self._buckets = width, grams
        return self._buckets

    def _alone(self, theta: Params, known: Tensor) -> bool:
        """Whether every participant has a model of its own, which no other's is averaged with."""
        if self.judges or weighs(self.recipe) or shared_parameters(self.recipe, list(theta)):
            return False
        return bool((known >= 0).all()) and len(torch.unique(known)) == len(known)

    def _fuses(self, theta: Params, device: torch.device) -> bool:
        """Whether kernels do it; of as many models it is found out once."""
        weight = theta[self.first.weight]
        if weight.shape not in self._kernels:
            given = self.task, self.recipe, self.clients
            small = fused.applies(*given, device) and fused.bytes_needed(*given, theta) <= self.budget
            self._kernels[weight.shape] = small and weight.dtype == torch.float32
        return self._kernels[weight.shape]

    def _fitting(self, theta: Params, count: int) -> Callable[[int], int]:
        """Clients of a chunk, by the samples that they are padded to: within half of the budget (Gram
        matrices have the other), in cache on a CPU.
        """
        (k, h, d), like = theta[self.first.weight].shape, theta[self.first.weight]
        rest = sum(value[0].numel() for value in self._judge.rest(theta).values())
        judged = min(k, count) if self.judges else 1

        def fitting(rows: int) -> int:
            gram = d * h if has_factors(rows, d) else rows * rows
            one = like.element_size() * (rows * (d + 2 * judged * h + 6 * h) + gram + 4 * rest)
            size = chunk_size(self.budget, 2 * one, rows, count)
            return self._limit.cap(
                min(size, max(1, CACHE_ROWS // rows)) if like.device.type == "cpu" else size
            )

        return fitting
