"""All clients of a chunk at once: the same client function, mapped by torch.func.vmap. CPU and CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from ifca.core.attacks import Attack
from ifca.core.buckets import widths
from ifca.core.client import client_round, estimate, mean_loss, score
from ifca.core.errors import InvalidInput
from ifca.core.optimisers import optimiser_of
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs, Replies, Scores
from ifca.core.sampling import Plan, make_plan, on, take
from ifca.core.types import ClientReply, Data, Params, Task, model_count, select
from ifca.data import Clients
from ifca.engines.attacked import attacking
from ifca.engines.base import SUMS
from ifca.engines.collect import Collected
from ifca.engines.cuda.captured_turns import CapturedTurns, widened
from ifca.engines.cuda.convsteps import ConvSteps, conv_steps
from ifca.engines.cuda.graphed import GraphedSteps, begun, mapped_step
from ifca.engines.cuda.streams import evened
from ifca.engines.gram.chunks import places
from ifca.engines.memory_budget import DEFAULT_BUDGET, ChunkLimit, bytes_by_rows, chunk_size
from ifca.methods.registry import method_of
from ifca.models.networks import has_convolutions

SPARE = 2**12  # rows of padding that take as long as another chunk, whose operations are many


def _mapped(function: Callable[..., Any], dims: Any, *arguments: Any) -> Any:
    """torch.func.vmap, with advice where a model cannot be mapped."""
    try:
        return vmap(function, in_dims=dims)(*arguments)
    except RuntimeError as reason:
        if "vmap" not in str(reason):
            raise
        first = str(reason).split(". ")[0].splitlines()[0]
        raise InvalidInput(f'model: it cannot be vectorised ({first}); use engine "loop"') from reason


class VectorisedEngine:
    """Lines 5 to 12 of Algorithm 2 "in parallel": chunks of clients as one batched computation."""

    name = "vectorised"

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        clients: Clients,
        *,
        budget: int = DEFAULT_BUDGET,
        chunk: int | None = None,
        compiled: bool = False,
        by_hand: bool = True,
        attack: Attack | None = None,
    ) -> None:
        self.task, self.recipe, self.clients, self.attack = task, recipe, clients, attack
        self.client = method_of(recipe.algorithm).client
        self.budget, self._limit = budget, ChunkLimit(chunk)
        self.kept_bytes = budget // 4  # of single updates
        self._width = widths(clients.sizes, SPARE)
        self._need: dict[torch.dtype, Callable[[int], int]] = {}  # bytes of a client of so many samples
        self._optimiser, alone = optimiser_of(recipe), has_convolutions(task.module)
        mapped = mapped_step(task, self._optimiser, compiled=compiled)
        self._graphed = GraphedSteps(mapped, int(clients.sizes.max()), alone=alone)
        self._by_hand = by_hand  # let kernels written by hand do steps of convolutional networks
        self._conv: ConvSteps | None = None
        self._captured = CapturedTurns(self._mapped_turns, alone=alone)

    def train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs = SUMS) -> Replies:
        """The turns of all participants, chunk by chunk; those sent all k models first."""
        return self._limit.run(lambda: self._train(theta, who, known, t, needs))

    def _train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs) -> Replies:
        def again(rows: Tensor) -> Iterator[tuple[Tensor, Params]]:
            for place, reply in self._chunks(theta, who[rows], known[rows], t):
                yield place, reply.update

        sizes = self.clients.sizes[who.numpy()]
        attack = attacking(self.attack, self.recipe, theta, who, known, t)
        found = Collected(self.recipe, theta, sizes, known, needs, again, self.kept_bytes, attack)
        for place, reply in self._chunks(theta, who, known, t):
            found.add(place, reply)
        return found.replies()

    def _chunks(
        self, theta: Params, who: Tensor, known: Tensor, t: int
    ) -> Iterator[tuple[Tensor, ClientReply]]:
        """The replies of a chunk at a time, with its places among those who take part."""
        like, asked = next(iter(theta.values())), known < 0
        sizes, width = (torch.from_numpy(part)[who] for part in (self.clients.sizes, self._width))
        if like.is_cuda and (self.recipe.batch_size is not None or self.recipe.resample):
            width = torch.full_like(width, int(sizes.max()))  # captured for the largest, and replayed
        for place in places(width, sizes, asked, known, self._fitting(theta, self.clients, who)):
            if like.is_cuda:  # the largest first (engines/cuda/graphed.py), whatever they were sent
                place = place[torch.argsort(sizes[place], stable=True, descending=True)]
            own = None if asked[place[0]] else known[place].to(like.device)
            yield place, self._turns(theta, who[place].numpy(), own, t)

    def score(self, theta: Params, clients: Clients, own: Tensor | None = None) -> Scores:
        """Every client, every model (or its own)."""
        return self._limit.run(lambda: self._score(theta, clients, own))

    def _score(self, theta: Params, clients: Clients, own: Tensor | None) -> Scores:
        like = next(iter(theta.values()))
        everyone = torch.arange(len(clients))
        columns = model_count(theta) if own is None else 1
        loss, correct = (torch.empty(len(clients), columns, dtype=like.dtype) for _ in range(2))
        sizes, width = torch.from_numpy(clients.sizes), torch.from_numpy(widths(clients.sizes, SPARE))
        fitting = self._fitting(theta, clients, everyone)
        for place in places(width, sizes, everyone >= 0, everyone, fitting):
            data = clients.padded(place.numpy(), like.device, like.dtype)
            for j in range(columns):
                if own is None:
                    model = select(theta, j)
                    one = _mapped(lambda d, m=model: score(self.task, m, d), 0, data)
                else:
                    mine = select(theta, own[place].to(like.device))
                    one = _mapped(lambda m, d: score(self.task, m, d), 0, mine, data)
                loss[place, j], correct[place, j] = one[0].cpu(), one[1].cpu()
        return Scores(loss, correct)

    def fits(self, theta: Params) -> None:
        """Refuse a memory budget that is too small for the largest client."""
        self._fitting(theta, self.clients, torch.arange(len(self.clients)))(int(self.clients.sizes.max()))

    def _turns(self, theta: Params, who: NDArray[np.int64], own: Tensor | None, t: int) -> ClientReply:
        """The turns of one chunk."""
        like, step = next(iter(theta.values())), self.recipe.step(t)
        data = self.clients.padded(who, like.device, like.dtype)
        plan = self._plan(t, who, int(self.clients.sizes[who].max()))
        if not like.is_cuda or plan.steps is None:
            return self._mapped_turns(theta, data, on(plan, like.device), own, step)
        papers = self.client is client_round and self.recipe.option == "model"
        if papers:
            return self._captured_steps(theta, data, plan, own, step)
        size = evened(data.x.shape[1], int(self.clients.sizes.max()))
        plan = on(self._plan(t, who, size), like.device)
        return self._captured(theta, widened(data, size), plan, own, step)

    def _plan(self, t: int, who: NDArray[np.int64], size: int) -> Plan:
        """The plans of a chunk, as wide as if one more client had so many samples; in main memory."""
        keys, sizes = (
            np.append(self.clients.keys[who], np.uint64(0)),
            np.append(self.clients.sizes[who], size),
        )
        plan = make_plan(self.recipe, t, keys, sizes, self.task.draws)
        return Plan(*(None if part is None else part[:-1] for part in plan))

    def _mapped_turns(
        self, theta: Params, data: Data, plan: Plan, own: Tensor | None, step: float | Tensor
    ) -> ClientReply:
        """The client function, mapped."""

        def turn(data: Data, rows: tuple[Tensor | None, ...], own: Tensor | None) -> ClientReply:
            return self.client(self.task, self.recipe, step, theta, data, Plan(*rows), own)

        over_plan = tuple(None if part is None else 0 for part in plan)
        dims = (0, over_plan, None if own is None else 0)
        reply: ClientReply = _mapped(turn, dims, data, tuple(plan), own)
        return reply

    def _captured_steps(
        self, theta: Params, data: Data, plan: Plan, own: Tensor | None, step: float
    ) -> ClientReply:
        """Option II in mini-batches on CUDA: one step is captured and replayed."""
        assert plan.steps is not None
        if self._by_hand and self._conv is None:
            plain = self._optimiser.plain and self.task.training is None
            self._conv = conv_steps(self.task, data.x, len(self.clients)) if plain else None
            self._by_hand = self._conv is not None
            if self._conv is not None:
                self._graphed = GraphedSteps(self._conv.captured_step, int(self.clients.sizes.max()))
        judge = partial(self._estimates, theta, data)
        if self._conv is not None:
            images = self._conv.prepare(data)
            judge = partial(self._conv.estimate, theta, images)
            data = images if self.task.augment is None else data
        rows = on(Plan(plan.identity, None), data.x.device).identity

        def steps(j: Tensor) -> Params:
            begin = begun(select(theta, j), self._optimiser)
            assert plan.steps is not None
            return self._graphed(begin, data, plan.steps, plan.draws, step)

        if own is None or self.task.augment is not None:  # whose batches are other images
            j, losses = judge(rows, own)
            return ClientReply(j, losses, steps(j))
        update = steps(own)  # the host asks for losses while the GPU takes them
        return ClientReply(*judge(rows, own), update)

    def _estimates(
        self, theta: Params, data: Data, rows: Tensor | None, own: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Identities [c] and losses [c, k]. Those who were sent one model judge it together, so that its
        convolutions are those of one model.
        """

        def judge(data: Data, rows: Tensor | None, own: Tensor | None) -> Any:
            return estimate(self.task, theta, data, Plan(rows, None), own)

        over_rows = None if rows is None else 0
        if own is None:
            found: tuple[Tensor, Tensor] = _mapped(judge, (0, over_rows, None), data, rows, None)
            return found
        losses = data.weight.new_full((len(own), model_count(theta)), torch.nan)
        for j in sorted(set(own.tolist())):
            who, model = torch.nonzero(own == j)[:, 0], select(theta, j)

            def alone(data: Data, rows: Tensor | None, model: Params = model) -> Tensor:
                return mean_loss(self.task, model, data if rows is None else take(data, rows))

            mine = Data(*(part[who] for part in data)), None if rows is None else rows[who]
            losses[who, j] = _mapped(alone, (0, over_rows), *mine)
        return own, losses

    def _fitting(self, theta: Params, clients: Clients, who: Tensor) -> Callable[[int], int]:
        """Clients of a chunk, by the samples that they are padded to."""
        like = next(iter(theta.values()))
        if like.dtype not in self._need:  # a forward pass tells it
            largest = int(who[clients.sizes[who.numpy()].argmax()])
            data = clients.one(largest, like.device, like.dtype)
            self._need[like.dtype] = bytes_by_rows(self.task, self.recipe, theta, data)
        need = self._need[like.dtype]
        return lambda rows: self._limit.cap(chunk_size(self.budget, need(rows), rows, len(who)))
