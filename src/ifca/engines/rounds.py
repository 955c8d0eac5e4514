"""Algorithm 2 over an engine: sample, map, average, again. Functional: a round returns a new state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ifca.core.errors import Diverged
from ifca.core.identity import known_identity
from ifca.core.metrics import adjusted_rand_index, cluster_accuracy, cluster_sizes
from ifca.core.recipe import Recipe
from ifca.core.sampling import participants
from ifca.core.sketch import make_sketch
from ifca.core.types import ClusterState, live_models
from ifca.core.watch import check_is_due, without_judges
from ifca.data import Clients
from ifca.engines.base import Engine, Replies
from ifca.engines.evaluate import evaluate
from ifca.engines.job import Job
from ifca.engines.live import train_live
from ifca.engines.repair import repaired_state
from ifca.engines.server import next_state

Record = dict[str, Any]
"""One round of the history, as a line of rounds.jsonl."""
OnRound = Callable[[ClusterState, Record], None]


def train(job: Job, engine: Engine, state: ClusterState, on_round: OnRound) -> ClusterState:
    """Rounds state.round to T - 1; on_round is told the state and the record of each."""
    sketch = make_sketch(state.theta, job.recipe.seed) if job.recipe.repairs else None
    while state.round < job.recipe.rounds:
        began = time.perf_counter()
        t = state.round
        who = without_judges(state, participants(job.recipe, t, job.federation.train.keys))  # M_t
        known = known_identity(job.recipe, state, who)
        replies = train_live(
            engine, state.theta, who, known, t, sketch if _sketch_is_due(job.recipe, t) else None
        )
        if replies.answered is not None:  # of a real federation some may be missing
            who, known = who[replies.answered], known[replies.answered]
        check_finite(job.recipe, job.federation.train, f"in round {t + 1}", who, replies.loss)
        before, events = state, None
        if job.recipe.repairs:
            state, replies, events = repaired_state(job, engine, state, who, known, replies)
        else:
            state = next_state(job, state, who, known, replies)
        record = describe(job, before, state, who, known, replies)
        if events is not None:
            record["events"] = events
        if _evaluation_is_due(job.recipe, state.round):
            test = evaluate(engine, job, state.theta, state.identity)
            if test is not None:
                record["test_accuracy"] = test.accuracy(test.paper_rule)
                record["test_accuracy_train_rule"] = test.accuracy(test.train_rule)
                record["test_loss"] = test.mean_loss(test.paper_rule)
                if job.metrics:
                    record["test_metrics"] = test.mean_metrics(test.metrics)
        record["seconds"] = round(time.perf_counter() - began, 4)
        on_round(state, record)
    return state


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
        "models": int(live_models(after.theta).sum()),
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


def _sketch_is_due(recipe: Recipe, t: int) -> bool:
    return recipe.repairs and (recipe.participation < 1 or check_is_due(t))


def _largest(clients: Clients) -> float:
    if not len(clients.x):  # the data are at the clients
        return math.nan
    if clients.x.dtype == torch.uint8:
        return float(clients.x.max()) / 255
    return float(clients.x.abs().max())


def _evaluation_is_due(recipe: Recipe, done: int) -> bool:
    every = recipe.evaluate_every
    return done == recipe.rounds or (every > 0 and done % every == 0)
