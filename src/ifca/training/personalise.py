"""Personalisation that cannot hurt: every client compares its served model with candidates of its own.

Each candidate (candidates.py) is tried in folds of the client's training data, so that every sample judges
models that were not tuned on it; core/safe_choice.py decides, for all clients together; what was chosen is
made again on all of the client's data. Test data is looked at once, to report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.optimisers import optimiser_of
from ifca.core.safe_choice import FOLDS, CandidateSavings, Choice, Prior, choose, learn_prior
from ifca.core.types import Data, Params, select
from ifca.engines.memory_budget import client_bytes, default_budget
from ifca.engines.precision import products
from ifca.training.candidates import ALL, SERVED, Candidate, Tuner
from ifca.training.evaluate import Evaluation
from ifca.training.fit import Fitted
from ifca.training.job import Job
from ifca.training.local_training import GPU_ROWS
from ifca.training.start import drawn_models, given_models

FIRST_LOOK = 32  # clients that try everything, to see what is worth the others' time
CACHE_VALUES = 2**20  # of G, Z and D of a chunk's clients that a CPU's cache holds
FEWEST_STEPS = 20  # of tuning that every client tries all the same


@dataclass(frozen=True)
class Personalised:
    """What every training client chose, and what it does for it."""

    fitted: Fitted
    candidates: tuple[Candidate, ...]
    choice: Choice
    before: NDArray[np.float64]  # [m] held-out loss of the served model; NaN: nothing could be held out
    after: NDArray[np.float64]  # [m] of the chosen candidate
    prior: Prior | None  # what candidates save a client; None: of fewer than two clients
    test: Evaluation | None = None  # of the test clients that are in training too, each by its own model

    @property
    def chosen(self) -> list[Candidate]:
        """Of each client."""
        return [self.candidates[c] for c in self.choice.candidate]

    @cached_property
    def tuner(self) -> Tuner:
        """How the clients tuned."""
        return tuner_of(self.fitted)

    def outputs(self, i: int, x: Tensor) -> Tensor:
        """What client i's own model says of x [n, ...], as the models see it; made again on each call."""
        job, who = self.fitted.job, np.array([i])
        like = next(iter(self.fitted.state.theta.values()))
        served = select(self.fitted.state.theta, self.fitted.labels[who].to(like.device))
        with torch.no_grad(), products(job.precision):
            data = job.federation.train.padded(who, like.device, like.dtype)
            models = self.tuner.made([self.chosen[i]], served, data)
            return self.tuner.outputs([self.chosen[i]], served, models, x.to(like)[None])[0]


def personalise(fitted: Fitted) -> Personalised:
    """Let every training client choose; local models stay as they are, since they learned every sample."""
    job, m = fitted.job, len(fitted.labels)
    if job.engine == "flower":
        raise InvalidInput(
            "personalise: the clients of this federation have their data; each can do it itself"
        )
    with torch.no_grad(), products(job.precision):
        if job.method.personal:
            nothing = Choice(np.zeros(m, np.int64), np.zeros(m), np.zeros(m))
            unknown = np.full(m, np.nan)
            return Personalised(fitted, (SERVED,), nothing, unknown, unknown, None, fitted.test)
        tuner, keys = tuner_of(fitted), job.federation.train.keys
        candidates, savings, losses = _tried(fitted, tuner)
        prior = learn_prior(savings, keys)
        choice = choose(savings, prior)
        losses[savings.samples < 2] = np.nan
        after = losses[np.arange(m), choice.candidate]
        found = Personalised(fitted, candidates, choice, losses[:, 0], after, prior)
        return replace(found, test=_tested(found, tuner))


def always(found: Personalised, one: Candidate) -> Personalised:
    """The same clients if each took one candidate, whether that helps or not: to compare with."""
    if found.fitted.job.method.personal:
        return found
    m, candidates = len(found.before), (SERVED, one)
    taken = Choice(np.ones(m, np.int64), np.zeros(m), np.zeros(m))
    made = Personalised(found.fitted, candidates, taken, found.before, np.full(m, np.nan), None)
    with torch.no_grad(), products(found.fitted.job.precision):
        return replace(made, test=_tested(made, made.tuner))


def tuner_of(fitted: Fitted) -> Tuner:
    """The steps of the job's own rounds, whole data in each; local models begin where the first model did."""
    job = fitted.job
    common = select(given_models(job) or drawn_models(job, fitted.restart), 0)
    dense = job.task.first is not None and job.task.first.dense is not None
    slow = job.device.type == "cpu" and job.convolves
    mapped = dense or (job.engine == "vectorised" and not slow)
    how = optimiser_of(job.recipe)
    return Tuner(job.task, job.recipe.step_size, common, job.recipe.seed, mapped, how)


def _tried(
    fitted: Fitted, tuner: Tuner
) -> tuple[tuple[Candidate, ...], CandidateSavings, NDArray[np.float64]]:
    """The candidates that were tried by all, what they saved, and their losses [m, C].

    A few clients try everything first; the others try local models only where one of these takes one, and
    tune for at most twice as many steps as any of these.
    """
    keys = fitted.job.federation.train.keys
    order = np.argsort(keys, kind="stable")
    first, rest = order[:FIRST_LOOK], order[FIRST_LOOK:]
    look, loss = _savings(fitted, tuner, ALL, first)
    taken = [ALL[c] for c in choose(look, learn_prior(look, keys[first])).candidate]
    kept = worth_trying(taken)
    look = look._replace(mean=look.mean[:, kept], spread=look.spread[:, kept])
    candidates, parts = tuple(ALL[c] for c in kept), [(look, loss[:, kept])]
    parts += [_savings(fitted, tuner, candidates, rest)] if len(rest) else []
    back = np.argsort(order)  # from the order of keys to that of the clients
    mean, spread, samples = (
        np.concatenate(one)[back] for one in zip(*(part[0] for part in parts), strict=True)
    )
    return (
        candidates,
        CandidateSavings(mean, spread, samples),
        np.concatenate([part[1] for part in parts])[back],
    )


def worth_trying(taken: list[Candidate]) -> list[int]:
    """Numbers of candidates that all clients should try, by what the first ones took."""
    alone = any(candidate.alone for candidate in taken)
    most = max(FEWEST_STEPS, *(2 * candidate.steps for candidate in taken if not candidate.alone), 0)
    return [c for c, one in enumerate(ALL) if (alone if one.alone else one.steps <= most)]


def _savings(
    fitted: Fitted, tuner: Tuner, candidates: tuple[Candidate, ...], who: NDArray[np.int64]
) -> tuple[CandidateSavings, NDArray[np.float64]]:
    clients = fitted.job.federation.train
    mean, spread, losses = (np.empty((len(who), len(candidates))) for _ in range(3))
    for places, served, data in _chunks(fitted, who):
        mine = who[places]
        found = tuner.tried(candidates, served, data, clients.sizes[mine], clients.keys[mine])
        mean[places], spread[places], losses[places] = *found.savings[:2], found.loss
    return CandidateSavings(mean, spread, clients.sizes[who]), losses


def _chunks(fitted: Fitted, who: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Params, Data]]:
    """Places among who, their served models and data; the same chunks in whatever order clients come."""
    clients, theta = fitted.job.federation.train, fitted.state.theta
    like = next(iter(theta.values()))
    order = np.lexsort((clients.keys[who], clients.sizes[who]))
    size = _together(fitted.job, theta, int(who[order[-1]]))
    for begin in range(0, len(order), size):
        places = order[begin : begin + size]
        served = select(theta, fitted.labels[who[places]].to(like.device))
        yield places, served, clients.padded(who[places], like.device, like.dtype)


def _together(job: Job, theta: Params, largest: int) -> int:
    """Clients of a chunk: what memory bears, on a CPU what stays in its cache."""
    like, first = next(iter(theta.values())), job.task.first
    data = job.federation.train.one(largest, like.device, like.dtype)
    recipe = replace(job.recipe, batch_size=None, local_epochs=None)
    one = FOLDS * client_bytes(job.task, recipe, theta, data)
    fitting, rows = (job.budget or default_budget(job.device)) // one, GPU_ROWS
    if like.device.type == "cpu" and first is not None:
        rows = CACHE_VALUES // (len(data.x) + 3 * theta[first.weight].shape[1])
    return int(max(1, min(fitting, rows // (FOLDS * len(data.x)))))


def _tested(found: Personalised, tuner: Tuner) -> Evaluation | None:
    """The evaluation of the served models, with each client's own model in the place of its cluster's."""
    fitted, before = found.fitted, found.fitted.test
    tests = fitted.job.federation.test
    if before is None or tests is None:
        return None
    owned = {int(owner): place for place, owner in enumerate(fitted.job.federation.test_owner) if owner >= 0}
    loss, correct = before.loss(before.train_rule)[:, None], before.correct(before.train_rule)[:, None]
    who = np.array([i for i in owned if found.choice.candidate[i]], np.int64)
    if len(who):
        for places, served, data in _chunks(fitted, who):
            mine = who[places]
            chosen = [found.chosen[i] for i in mine]
            models = tuner.made(chosen, served, data)
            for b, i in enumerate(mine):
                one = tests.one(owned[int(i)], data.weight.device, data.weight.dtype)
                own, its = ({n: v[b : b + 1] for n, v in part.items()} for part in (models, served))
                outputs = tuner.outputs(chosen[b : b + 1], its, own, one.x[None])[0]
                loss[owned[int(i)], 0], correct[owned[int(i)], 0] = _scored(tuner, outputs, one.y)
    scores = before.scores._replace(loss=loss, correct=correct)
    return replace(before, scores=scores, paper_rule=before.train_rule, metrics={}, metrics_train_rule={})


def _scored(tuner: Tuner, outputs: Tensor, y: Tensor) -> tuple[float, float]:
    """Mean loss, and the number of right predictions."""
    loss, correct = float(tuner.task.loss(outputs, y).double().mean()), tuner.task.correct
    return loss, float("nan") if correct is None else float(correct(outputs, y).sum())
