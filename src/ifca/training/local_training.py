"""Local models without the models: train and test every client's own model as W_0 - gamma S'X.

All local models start from one W_0 and take full-batch steps, so what a client learned is its S [n, h] and
its small later layers. On test data X_t its first layer gives Z = X_t W_0' + b_0 - (X_t X' + 1 1') S: no
client's first layer is formed unless that is cheaper. Memory is a chunk of clients', not m models'.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.optimisers import optimiser_of
from ifca.core.replies import Scores
from ifca.core.types import Params
from ifca.data import Clients
from ifca.engines.gram.chunks import CACHE_ROWS, Chunk, Grams, load
from ifca.engines.gram.fast import applies
from ifca.engines.gram.gram_steps import Scratch, local_steps, make_signal
from ifca.training.job import Job
from ifca.training.start import drawn_models, given_models

GPU_ROWS = 2**17  # samples of a chunk on a GPU
KEPT = 8  # lists of test clients whose samples are kept: a rotation's, tested by many


def local_scores(job: Job, tests: Clients, pairs: Sequence[Sequence[int]], restart: int = 0) -> Scores:
    """Train all local models for the job's rounds; client i's is tested on the test clients pairs[i].

    Returns [m, 1]: mean loss over the tested samples, and the number of right predictions.
    """
    job = job.placed()
    first, recipe, clients = job.task.first, job.recipe, job.federation.train
    plain = recipe.option == "model" and recipe.batch_size is None and applies(job.task, recipe)
    if not job.method.personal or not plain:
        raise InvalidInput(
            "local_scores needs local models, option model and full-batch steps of a linear first layer"
        )
    assert first is not None
    start = given_models(job) or drawn_models(job, restart)
    like, scratch = start[first.weight], Scratch()
    signal, how = make_signal(job.task, first, scratch), optimiser_of(recipe)
    grams = Grams(clients.sizes, bias=first.bias is not None, budget=0)
    loss, correct = torch.empty(len(clients), 1), torch.empty(len(clients), 1)
    size = max(1, (CACHE_ROWS if like.device.type == "cpu" else GPU_ROWS) // int(clients.sizes.max()))
    together = lru_cache(KEPT)(lambda places: _together(tests, places, like))
    with torch.no_grad():
        for begin in range(0, len(clients), size):
            who = torch.arange(begin, min(begin + size, len(clients)))
            data = load(clients, who.numpy(), int(clients.sizes[who.numpy()].max()), like, scratch)
            rest = {
                n: v.expand(len(who), *v.shape[1:]).clone()
                for n, v in start.items()
                if n not in (first.weight, first.bias)
            }
            z, g = _first_layer(job, start, data.x, data.scale), grams.of(who.numpy(), data)
            learned = torch.zeros_like(z)  # the sum over all steps of gamma S
            for t in range(recipe.rounds):
                step, s = recipe.step(t), torch.empty_like(z)
                chunk, tau = (z, g, data.y, data.weight), recipe.local_steps
                local_steps(signal, rest, *chunk, step, tau, s, how=how, scratch=scratch, catch_up=True)
                learned += step * s
            for i in range(len(who)):
                mine = {name: value[i] for name, value in rest.items()}
                present = int(clients.sizes[begin + i])
                one = Chunk(data.x[i, :present], data.y[i], data.weight[i], data.scale)
                loss[begin + i], correct[begin + i] = _test(
                    job, start, mine, one, learned[i, :present], *together(tuple(pairs[begin + i]))
                )
    return Scores(loss, correct)


def _first_layer(job: Job, start: Params, x: Tensor, scale: float) -> Tensor:
    """X W_0' + b_0."""
    assert job.task.first is not None
    z = (x * scale) @ start[job.task.first.weight][0].t()
    return z if job.task.first.bias is None else z + start[job.task.first.bias][0]


def _test(
    job: Job, start: Params, rest: Params, own: Chunk, learned: Tensor, x: Tensor, y: Tensor
) -> tuple[float, float]:
    """Loss and right predictions of one client's model on x, y; own.x [n, d], learned [n, h]."""
    first, task = job.task.first, job.task
    assert first is not None
    weight, rows = start[first.weight][0], len(x)
    (n, d), h = own.x.shape, weight.shape[0]
    apart = rows * n * (d + h) < d * h * (rows + n)  # cheaper than forming the first layer
    formed = weight if apart else weight - learned.t() @ own.x * own.scale
    z = x @ formed.t()
    if apart:
        z = z - (x @ own.x.t() * own.scale) @ learned
    if first.bias is not None:
        z = z + start[first.bias][0] - learned.sum(0)
    output = first.rest(rest, z)
    total = float(task.loss(output, y).double().sum())
    right = float("nan") if task.correct is None else float(task.correct(output, y).sum())
    return total / max(1, rows), right


def _together(tests: Clients, places: tuple[int, ...], like: Tensor) -> tuple[Tensor, Tensor]:
    """The samples of some test clients, one after the other: x [rows, d] and y."""
    parts = [tests.one(place, like.device, like.dtype) for place in places]
    return torch.cat([part.x.flatten(1) for part in parts]), torch.cat([part.y for part in parts])
