"""Algorithm 2 over an engine: sample, map, average, again. Functional: a round returns a new state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ifca.core.errors import Diverged
from ifca.core.identity import known_identity, rounds_unchanged
from ifca.core.ledger import Wire
from ifca.core.metrics import adjusted_rand_index, cluster_accuracy, cluster_sizes
from ifca.core.recipe import Recipe
from ifca.core.sampling import participants
from ifca.core.server import gradient_averaging, model_averaging
from ifca.core.types import ClusterState
from ifca.data import Clients
from ifca.engines.base import Engine, Replies
from ifca.engines.evaluate import evaluate
from ifca.engines.job import Job

Record = dict[str, Any]
"""One round of the history, as a line of rounds.jsonl."""
OnRound = Callable[[ClusterState, Record], None]


def train(job: Job, engine: Engine, state: ClusterState, on_round: OnRound) -> ClusterState:
    """Rounds state.round to T - 1; on_round is told the state and the record of each."""
    while state.round < job.recipe.rounds:
        began = time.perf_counter()
        t = state.round
        who = participants(job.recipe, t, job.federation.train.keys)  # M_t
        known = known_identity(job.recipe, state, who)
        replies = engine.train(state.theta, who, known, t)
        check_finite(job.recipe, job.federation.train, f"in round {t + 1}", who, replies.loss)
        before, state = state, next_state(job, state, who, known, replies)
        for name, value in state.theta.items():
            _check_number(job.recipe, t, f"parameter {name}", float(value.abs().max()))
        record = describe(job, before, state, who, known, replies)
        if _evaluation_is_due(job.recipe, state.round):
            test = evaluate(engine, job, state.theta, state.identity)
            if test is not None:
                record["test_accuracy"] = test.accuracy(test.paper_rule)
                record["test_accuracy_train_rule"] = test.accuracy(test.train_rule)
                record["test_loss"] = test.mean_loss(test.paper_rule)
        record["seconds"] = round(time.perf_counter() - began, 4)
        on_round(state, record)
    return state


def next_state(job: Job, state: ClusterState, who: Tensor, known: Tensor, replies: Replies) -> ClusterState:
    """The center machine's part of a round: average, remember identities, count bytes."""
    recipe = job.recipe
    if recipe.option == "gradient":
        theta = gradient_averaging(
            state.theta,
            replies.total,
            recipe.step(state.round),
            job.shared,
            apart=not recipe.estimates_identity,
        )
    else:
        theta = model_averaging(state.theta, replies.total, job.shared)
    identity, down, up = state.identity.clone(), state.bytes_down.clone(), state.bytes_up.clone()
    identity[who] = replies.identity
    if recipe.algorithm != "local":  # a local model never leaves its client
        wire = Wire.of(state.theta, job.shared)
        down[who] += wire.down(known >= 0)
        up[who] += wire.up(known >= 0)
    asked = known < 0
    last_asked = state.asked.clone()
    last_asked[who[asked]] = state.round
    unchanged = rounds_unchanged(state, who, asked, replies.identity)
    return ClusterState(
        theta=theta,
        round=state.round + 1,
        identity=identity,
        unchanged=unchanged,
        checked=state.round if bool(asked.all()) else state.checked,
        changed=state.round if unchanged == 0 else state.changed,
        asked=last_asked,
        bytes_down=down,
        bytes_up=up,
    )


def describe(
    job: Job, before: ClusterState, after: ClusterState, who: Tensor, known: Tensor, replies: Replies
) -> Record:
    """The record of a round, from the states before and after it."""
    m, k, local, t = len(job.federation.train), job.models, job.recipe.algorithm == "local", before.round
    sizes = [1] * m if local else cluster_sizes(replies.identity, k)
    record: Record = {
        "round": t,
        "step_size": job.recipe.step(t),
        "participants": len(who),
        "clients": None if len(who) == m else who.tolist(),  # None: all of them
        "identity": None if local else replies.identity.tolist(),
        "sent_all_models": int((known < 0).sum()),
        "sent_all_models_to": None if bool((known < 0).all()) else who[known < 0].tolist(),  # None: all
        "rounds_unchanged": after.unchanged,
        "train_loss": float(replies.loss.double().mean()),
        "cluster_sizes": None if local else sizes,
        "live_clusters": sum(size > 0 for size in sizes),
        "bytes_down": int((after.bytes_down - before.bytes_down).sum()),
        "bytes_up": int((after.bytes_up - before.bytes_up).sum()),
    }
    true = job.federation.train.true_cluster
    if true is not None and not local:
        record["cluster_accuracy"] = cluster_accuracy(true[who.numpy()], replies.identity.numpy())
        record["adjusted_rand_index"] = adjusted_rand_index(true[who.numpy()], replies.identity.numpy())
    return record


def check_finite(recipe: Recipe, clients: Clients, when: str, who: Tensor, loss: Tensor) -> None:
    """Stop at the first loss that is not a number, with advice."""
    bad = torch.nonzero(~torch.isfinite(loss))[:, 0]
    if len(bad):
        name = clients.ids[int(who[bad[0]])]
        raise Diverged(
            f"training diverged: {when} the loss of client {name} is {float(loss[bad[0]])} "
            f"({len(bad)} of {len(who)} clients); try a smaller step_size than {recipe.step_size}, "
            f"or check the scale of the data (largest |x| is {_largest(clients):.3g})"
        )


def _check_number(recipe: Recipe, t: int, what: str, value: float | None) -> None:
    if value is not None and not math.isfinite(value):
        raise Diverged(
            f"training diverged: after round {t + 1} the {what} is {value}; "
            f"try a smaller step_size than {recipe.step_size}"
        )


def _largest(clients: Clients) -> float:
    if clients.x.dtype == torch.uint8:
        return float(clients.x.max()) / 255
    return float(clients.x.abs().max())


def _evaluation_is_due(recipe: Recipe, done: int) -> bool:
    every = recipe.evaluate_every
    return done == recipe.rounds or (every > 0 and done % every == 0)
