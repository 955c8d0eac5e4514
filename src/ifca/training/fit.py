"""From a job to trained models: the start of each algorithm, its rounds, and what is reported at the end."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ifca.core.callbacks import Record
from ifca.core.errors import Diverged, InvalidInput
from ifca.core.identity import identity
from ifca.core.initial import assert_distinct, is_balanced, random_models, warm_start
from ifca.core.ledger import Wire
from ifca.core.sampling import participants
from ifca.core.types import ClusterState, Params, free, model_count
from ifca.data import Clients
from ifca.engines.base import Engine, Scores
from ifca.engines.live_models import score_live
from ifca.engines.precision import products
from ifca.methods.baselines import given_identity
from ifca.methods.oneshot import cluster_models
from ifca.methods.watch import begin
from ifca.training.evaluate import Evaluation, evaluate
from ifca.training.job import Job
from ifca.training.rounds import OnRound, check_finite, train

REDRAWS = 1000


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

    @property
    def train_loss(self) -> float:
        """Mean over the clients of their own loss, what restarts are judged by."""
        return float(self.own_loss.nanmean())

    @property
    def own_loss(self) -> Tensor:
        """Each client's training loss under its own model: [m]; NaN for one that did not answer."""
        column = self.labels.clamp(min=0) if self.train.loss.shape[1] > 1 else torch.zeros_like(self.labels)
        return self.train.loss.gather(1, column[:, None])[:, 0].double()

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
    job: Job, *, restart: int = 0, resume: ClusterState | None = None, on_round: OnRound | None = None
) -> Fitted:
    """Train from the start, or go on from a state; then let every client choose once more."""
    history: list[Record] = []

    began = time.perf_counter()
    job = job.placed()
    engine = job.make_engine()
    with products(job.precision):
        first = resume or balanced(job, engine, start(job, restart), restart)
    preparation = 0.0 if resume else time.perf_counter() - began

    def told(state: ClusterState, record: Record) -> None:
        record["restart"] = restart
        if not history:  # one-shot clusters before its first round
            record["seconds"] = round(record["seconds"] + preparation, 4)
            record["bytes_down"] += 0 if resume else int(first.bytes_down.sum())
            record["bytes_up"] += 0 if resume else int(first.bytes_up.sum())
        history.append(record)
        if on_round is not None:
            on_round(state, record)

    with products(job.precision):
        state = train(job, engine, first, told)
        labels, scores = final_identities(job, engine, state)
        test = evaluate(engine, job, state.theta, labels)
    return Fitted(job, restart, state, labels, scores, test, history)


def start(job: Job, restart: int = 0) -> ClusterState:
    """The state before round 0: initial models, identities where they are given, an empty ledger."""
    m = len(job.federation.train)
    known = given_identity(job.recipe, m)
    down, up = torch.zeros(m, dtype=torch.long), torch.zeros(m, dtype=torch.long)
    if job.recipe.algorithm == "oneshot":
        known, down, up = one_shot_clusters(job, restart)
    theta = initial_models(job, restart)
    if job.recipe.algorithm == "local":
        theta = {name: value.expand(m, *value.shape[1:]).clone() for name, value in theta.items()}
    return ClusterState(
        theta=theta,
        round=0,
        identity=known,
        unchanged=0,
        checked=-1,
        changed=0,
        asked=torch.full((m,), -1),
        bytes_down=down,
        bytes_up=up,
        watch=begin(m, job.models) if job.recipe.repairs else None,
    )


def balanced(job: Job, engine: Engine, first: ClusterState, restart: int) -> ClusterState:
    """Where the recipe asks for it: k models drawn again until the first round's clients share them (D9)."""
    recipe = job.recipe
    if recipe.initial != "balanced" or recipe.algorithm != "ifca-plain" or job.warm_start is not None:
        return first
    if job.engine == "flower":
        raise InvalidInput('initial = "balanced" is for simulations: no real federation is asked 1000 times')
    who = job.federation.train.subset(participants(recipe, 0, job.federation.train.keys).tolist())
    for redraw in range(REDRAWS):
        theta = initial_models(job, restart, redraw)
        if is_balanced(identity(engine.score(theta, who).loss), job.models):
            return replace(first, theta=theta)
    raise InvalidInput(f'initial = "balanced": none of {REDRAWS} draws of {job.models} models is')


def initial_models(job: Job, restart: int, redraw: int = 0) -> Params:
    """As many different models as there are clusters; one for local models, which all begin alike."""
    draws = 1 if job.recipe.algorithm == "local" else job.models
    theta = random_models(job.draw, draws, job.recipe.seed, restart, job.shared, redraw)
    if job.warm_start is not None:
        theta = warm_start(job.warm_start, theta, job.shared)
    assert_distinct(theta)
    if job.recipe.repairs and (job.warm_start is None or model_count(job.warm_start) < job.models):
        theta = free(theta, torch.arange(1, job.models))  # all clients begin on one model
    return {name: value.to(job.device) for name, value in theta.items()}


def one_shot_clusters(job: Job, restart: int) -> tuple[Tensor, Tensor, Tensor]:
    """Lines 1 and 2 of Algorithm 1: the clients' clusters [m], and bytes down and up by client [m].

    In simulation each client sends its solution up, once; on Flower what was sent is measured.
    """
    alone = job.local_solutions()
    engine, first, clients = alone.make_engine(), start(alone, restart), job.federation.train
    advice = f"one-shot clustering: set erm_step_size to less than {alone.recipe.step_size}"
    try:
        state = train(alone, engine, first, lambda _state, _record: None)
    except Diverged as reason:
        raise Diverged(f"{advice} ({reason})") from reason
    before = float(engine.score(first.theta, clients, first.identity).loss.mean())
    after = float(engine.score(state.theta, clients, state.identity).loss.mean())
    if not after <= before:
        raise Diverged(
            f"{advice} (local training took the clients' mean loss from {before:.3g} to {after:.3g})"
        )
    sent = 0 if job.remote is not None else Wire.of(state.theta, frozenset()).clustered
    labels = cluster_models(state.theta, job.make_clusterer(), job.recipe.k)
    return numbered_by_clients(labels, clients), state.bytes_down, state.bytes_up + sent


def numbered_by_clients(labels: Tensor, clients: Clients) -> Tensor:
    """Clusters numbered by their members' ids, so that the order of the clients does not matter."""
    first = {int(j): min(clients.keys[labels.numpy() == int(j)]) for j in set(labels.tolist())}
    order = sorted(first, key=lambda j: int(first[j]))
    return torch.tensor([order.index(j) for j in labels.tolist()])


def final_identities(job: Job, engine: Engine, state: ClusterState) -> tuple[Tensor, Scores]:
    """Labels that belong to the models returned: identity is estimated once more after the last update."""
    clients = job.federation.train
    if job.recipe.algorithm == "local":
        scores = engine.score(state.theta, clients, state.identity)
        labels, own = state.identity, scores.loss[:, 0]
    else:
        scores = score_live(engine, state.theta, clients)
        labels = identity(scores.loss) if job.recipe.estimates_identity else state.identity
        if scores.answered is not None:  # who is missing keeps its last identity
            labels = torch.where(scores.answered, labels, state.identity)
        own = scores.loss.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    heard = torch.arange(len(clients)) if scores.answered is None else torch.nonzero(scores.answered)[:, 0]
    check_finite(job.recipe, clients, "after the last round", heard, own[heard])
    return labels, scores
