"""From a job to trained models: the start of its method, its rounds, and what is reported at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ifca.core.callbacks import Record, wants_to_stop
from ifca.core.errors import Diverged
from ifca.core.replies import Scores
from ifca.core.types import ClusterState, places_of
from ifca.engines.base import Engine
from ifca.engines.live_models import compact, score_live
from ifca.engines.precision import products
from ifca.training.dealt_clients import begun
from ifca.training.early_stopping import ending
from ifca.training.evaluate import Evaluation, evaluate
from ifca.training.going_back import check_last
from ifca.training.halving import Attempt, attempt, begin, retreat
from ifca.training.job import Job
from ifca.training.rounds import OnRound, check_finite, finished, train
from ifca.training.unseen import Unseen, evaluate_unseen


@dataclass(frozen=True)
class Fitted:
    """Trained models, and the clients' places among them."""

    job: Job
    restart: int
    state: ClusterState
    labels: Tensor  # [m] the clusters of the training clients under the returned models
    train: Scores  # [m, k], of training data; [m, 1] for local models
    test: Evaluation | None
    history: list[Record]
    places: list[int]  # of each model returned: the number of its cluster in the history
    unseen: Unseen | None = None  # test clients that were never in training

    @property
    def train_loss(self) -> float:
        """Mean over the clients of their own loss, what restarts are judged by."""
        return float(self.own_loss.nanmean())

    @property
    def own_loss(self) -> Tensor:
        """Each client's training loss under its own model: [m]; NaN for one that did not answer."""
        column = self.labels.clamp(min=0) if self.train.loss.shape[1] > 1 else torch.zeros_like(self.labels)
        return self.train.loss.gather(1, column[:, None])[:, 0].double()

    @property
    def stopped(self) -> dict[str, Any] | None:
        """How many rounds it took and why it stopped; None: it did the rounds that were asked for."""
        return ending(self.state, early_stopping=self.job.recipe.early_stopping)

    def outcome(self) -> dict[str, Any]:
        """The main numbers, for those who are told of the end."""
        found: dict[str, Any] = {
            "algorithm": self.job.recipe.algorithm,
            "rounds": self.state.round,
            "train_loss": self.train_loss,
            "live_clusters": len(set(self.labels.tolist())),
            "bytes_down": int(self.state.bytes_down.sum()),
            "bytes_up": int(self.state.bytes_up.sum()),
        }
        if self.test is not None:
            for name, rule in (("", self.test.paper_rule), ("_train_rule", self.test.train_rule)):
                found["test_accuracy" + name] = self.test.accuracy(rule)
                found["test_loss" + name] = self.test.mean_loss(rule)
        return found


def fit(
    job: Job,
    *,
    restart: int = 0,
    resume: ClusterState | None = None,
    on_round: OnRound | None = None,
    history: Sequence[Record] = (),
) -> Fitted:
    """Train from the start, or go on from a state; then let every client choose once more.

    history: the records of the rounds before the state to go on from.
    """
    records, began, given = list(history), time.perf_counter(), job
    job, on_round = begun(job, restart, resume, on_round)
    job = job.placed()
    resume = None if resume is None else _in_order(resume, job.names)
    with products(job.precision):
        now, first = (
            begin(job, restart) if resume is None else (attempt(job, len(resume.progress.halved)), resume)
        )
    preparation, latest = 0.0 if resume else time.perf_counter() - began, first

    def told(state: ClusterState, record: Record) -> bool:
        nonlocal latest
        latest, record["restart"] = state, restart
        if not records:  # one-shot takes time and bytes before its first round
            record["seconds"] = round(record["seconds"] + preparation, 4)
            record["bytes_down"] += 0 if resume else int(first.bytes_down.sum())
            record["bytes_up"] += 0 if resume else int(first.bytes_up.sum())
        records.append(record)
        return on_round is not None and wants_to_stop(on_round, state, record)

    with products(job.precision):
        while True:
            try:
                latest = train(now.job, now.problem, now.engine, latest, told)
                return _alone(_ended(now, restart, latest, records), given)
            except Diverged as reason:  # noqa: PERF203
                latest = retreat(now.job, latest, reason)
                now = attempt(job, len(latest.progress.halved))


def _alone(fitted: Fitted, given: Job) -> Fitted:
    """What was trained on several ranks, as if it had been on this one: what follows is done here alone."""
    if fitted.job.ranks is None:
        return fitted
    return replace(fitted, job=replace(fitted.job, federation=given.federation, ranks=None, mine=None))


def _ended(now: Attempt, restart: int, last: ClusterState, history: list[Record]) -> Fitted:
    """What came out of the rounds."""
    job, engine = now.job, now.engine
    if last.progress.unfinished and history:  # the last record was written before this was known
        last, history[-1] = finished(job, now.problem, engine, last, history[-1])
    state = compact(last)
    labels, scores = final_identities(job, engine, state)
    check_last(job.recipe, last, own_losses(labels, scores))
    test = evaluate(engine, job, state, labels)
    unseen = evaluate_unseen(engine, job, state)
    places = places_of(last.live).tolist()
    return Fitted(job, restart, state, labels, scores, test, history, places, unseen)


def final_identities(job: Job, engine: Engine, state: ClusterState) -> tuple[Tensor, Scores]:
    """Labels that belong to the models returned: clients judge once more after the last update."""
    clients = job.federation.train
    if job.method.personal:
        scores = engine.score(state.theta, clients, state.identity)
        labels = state.identity
    else:
        scores = score_live(engine, state.theta, state.live, clients)
        labels = job.method.serves(state, scores.loss)
        if scores.answered is not None:  # who is missing keeps its last identity
            labels = torch.where(scores.answered, labels, state.identity)
    own = own_losses(labels, scores)
    heard = torch.arange(len(clients)) if scores.answered is None else torch.nonzero(scores.answered)[:, 0]
    check_finite(job.recipe, clients, "after the last round", heard, own[heard])
    return labels, scores


def own_losses(labels: Tensor, scores: Scores) -> Tensor:
    """What each client loses under the model that serves it: [m]. scores: of all models, or of its own."""
    if scores.loss.shape[1] == 1:
        return scores.loss[:, 0]
    return scores.loss.gather(1, labels.clamp(min=0)[:, None])[:, 0]


def _in_order(state: ClusterState, names: list[str]) -> ClusterState:
    """A state with its parameters in the order of the model; a file has them by their names.

    The head of FedRep is the last layer, and sums over parameters depend on their order in the last bits.
    """
    kept = state.progress.kept
    progress = replace(state.progress, kept=None if kept is None else _in_order(kept, names))
    return replace(state, theta={name: state.theta[name] for name in names}, progress=progress)
