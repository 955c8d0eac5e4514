"""Samples that clients set aside: training without them, and comparing models on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from ifca.core.buckets import groups
from ifca.core.client import savings
from ifca.core.probe import probe_task, solve
from ifca.core.replies import Needs, Replies, Savings, Scores, Solutions
from ifca.core.types import Params, Task, model_count, select
from ifca.data import Clients, Federation
from ifca.data.clients import features, targets
from ifca.engines.base import SUMS, TurnEngine

ROWS = 2**13  # samples that a model is given at once, and of clients that solve together
LOSSES = 2**18  # that dense models work out at once on a GPU
LARGE = 2**30  # bytes of data that are not copied to part them


class WithAside:
    """An engine that also trains on what clients keep (Needs.aside) and compares on what they set aside."""

    def __init__(
        self,
        make: Callable[[Clients], TurnEngine],
        task: Task,
        federation: Federation,
        seed: int,
        device: torch.device,
        *,
        plain: bool,
        always: bool = False,
    ) -> None:
        """make: the engine of some clients. plain: in a loop over the clients, one after the other.

        always: samples are set aside in every round, whatever is needed.
        """
        self._always = always
        self.clients, self._make, self._task, self._seed = federation.train, make, task, seed
        self._classes, self._device, self._plain = federation.classes, device, plain
        self.whole = make(self.clients)
        self.name = self.whole.name

    @cached_property
    def _parts(self) -> tuple[Clients, Clients]:
        large = self.clients.nbytes > LARGE and self.clients.x.device == self._device
        return self.clients.parted(self._seed, copied=self._device.type != "cpu" or not large)

    @cached_property
    def _kept(self) -> TurnEngine:
        return self._make(self._parts[0])

    def train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs = SUMS) -> Replies:
        """As the engine does; without the samples set aside where they are needed to compare by."""
        if needs.aside or self._always:
            return self._kept.train(theta, who, known, t, needs)
        self.__dict__.pop("_kept", None)  # they may take as much memory as the whole
        return self.whole.train(theta, who, known, t, needs)

    def fits(self, theta: Params) -> None:
        """Refuse a memory budget that is too small for the largest client."""
        self.whole.fits(theta)

    def score(self, theta: Params, clients: Clients, own: Tensor | None = None) -> Scores:
        """As the engine does."""
        return self.whole.score(theta, clients, own)

    def score_aside(self, theta: Params, own: Tensor) -> Scores:
        """As the engine does, on the samples set aside."""
        held, m = self._parts[1], len(own)
        who = np.flatnonzero(held.sizes)
        found = self.whole.score(theta, held.subset(who), own[who])
        tables = [table.new_full((m, 1), torch.nan) for table in found[:2]]
        for table, part in zip(tables, found[:2], strict=True):
            table[who] = part
        return Scores(*tables)

    def leave_out(self, who: Tensor) -> None:
        """Their data are here: they take part in no round (training/rounds.py), and are scored as all are."""

    def solve(self) -> Solutions:
        """On what clients keep."""
        kept, w = self._parts[0], None
        for some in groups(kept.sizes, ROWS // 8, 1 if self._plain else ROWS):
            data = kept.padded(some, self._device, torch.float64)
            found = vmap(lambda data: solve(data, self._classes))(data)
            w = found.new_empty(len(kept), *found.shape[1:], dtype=torch.float32) if w is None else w
            w[torch.from_numpy(some).to(w.device)] = found.float()
        assert w is not None
        none = torch.zeros(len(kept), dtype=torch.long)
        sent = w[0].numel() * w.element_size()
        return Solutions({"w": w}, torch.ones_like(none, dtype=torch.bool), none, none + sent)

    def compare(
        self, theta: Params, who: Tensor, own: Tensor, others: Tensor, *, probes: bool = False
    ) -> Savings:
        """On the samples set aside."""
        held, task = self._parts[1], probe_task(self._classes) if probes else self._task
        with torch.no_grad():
            return (_one_by_one if self._plain else _together)(task, held, theta, who, own, others)


def _one_by_one(
    task: Task, held: Clients, theta: Params, who: Tensor, own: Tensor, others: Tensor
) -> Savings:
    """One client after the other."""
    like = next(iter(theta.values()))
    found = [
        savings(task, theta, held.one(i, like.device, like.dtype), int(own[row]), others[row].tolist())
        for row, i in enumerate(who.tolist())
    ]
    total, square = torch.stack([one[1].cpu() for one in found]), torch.stack([one[2].cpu() for one in found])
    return Savings(torch.tensor([one[0] for one in found]), total, square)


def _together(task: Task, held: Clients, theta: Params, who: Tensor, own: Tensor, others: Tensor) -> Savings:
    """The samples of all clients that judge a model at once: samples do not influence each other."""
    some = held.subset(who.numpy())
    client = torch.arange(len(some)).repeat_interleave(torch.from_numpy(some.sizes))  # [rows]
    asked = torch.cat([own[:, None], others], 1)[client]  # [rows, 1 + q]
    found = _by_all if next(iter(theta.values())).is_cuda else _by_those_asked_for
    losses = found(task, theta, some, asked)
    more = losses[:, 1:] - losses[:, :1]
    total = torch.zeros(len(some), others.shape[1], dtype=torch.float64)
    square = total.clone().index_add_(0, client, more.square())
    return Savings(torch.from_numpy(some.sizes), total.index_add_(0, client, more), square)


def _by_those_asked_for(task: Task, theta: Params, clients: Clients, asked: Tensor) -> Tensor:
    """Losses [rows, 1 + q] of all samples under the models asked for: each model judges its samples only."""
    losses = torch.zeros(asked.shape, dtype=torch.float64)
    for j in sorted(set(asked.flatten().tolist())):
        wanted = asked == j
        for rows in torch.split(torch.nonzero(wanted.any(1))[:, 0], ROWS):
            loss = _sample_losses(task, theta, [j], clients, rows)
            losses[rows] = torch.where(wanted[rows], loss, losses[rows])
    return losses


def _by_all(task: Task, theta: Params, clients: Clients, asked: Tensor) -> Tensor:
    """The same on a GPU: every model judges every sample, which takes less time than to part them."""
    models = range(model_count(theta))
    some = max(1, LOSSES // len(models)) if _dense(task) else ROWS
    return torch.cat(
        [
            _sample_losses(task, theta, models, clients, rows).gather(1, asked[rows])
            for rows in torch.split(torch.arange(len(asked)), some)
        ]
    )


def _sample_losses(
    task: Task, theta: Params, models: Sequence[int], clients: Clients, rows: Tensor
) -> Tensor:
    """The losses of some samples under some models: [rows, models]."""
    like = next(iter(theta.values()))
    x, y = (part.to(like.device) for part in clients.at(rows))
    x, y = features(x, like.dtype), targets(y, like.dtype)

    def losses(model: Params) -> Tensor:
        return task.loss(task.output(model, x), y)

    if len(models) == model_count(theta) and _dense(task):
        found = vmap(losses, out_dims=1)(theta)
    else:
        found = torch.stack([losses(select(theta, j)) for j in models], 1)
    return found.double().cpu()


def _dense(task: Task) -> bool:
    """Whether a model is Linear and ReLU layers, all of which take one product for all models."""
    return task.first is not None and task.first.dense is not None
