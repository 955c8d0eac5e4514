"""Algorithm 2 over an engine: sample, map, average, again. Functional: a round returns a new state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from ifca.core.callbacks import Record
from ifca.core.errors import Diverged
from ifca.core.identity import known_identity
from ifca.core.ledger import Wire
from ifca.core.metrics import adjusted_rand_index, cluster_accuracy, cluster_sizes
from ifca.core.recipe import Recipe
from ifca.core.sampling import participants
from ifca.core.sketch import Sketch, make_sketch
from ifca.core.types import ClusterState, live_models
from ifca.data import Clients
from ifca.engines.base import Engine, Replies
from ifca.engines.live_models import train_live
from ifca.methods.watch import check_is_due, without_judges
from ifca.training.evaluate import evaluate
from ifca.training.job import Job
from ifca.training.next_state import counted_bytes, next_state
from ifca.training.repair import repaired_state

OnRound = Callable[[ClusterState, Record], None]


def train(job: Job, engine: Engine, state: ClusterState, on_round: OnRound) -> ClusterState:
    """Rounds state.round to T - 1; on_round is told the state and the record of each."""
    sketch = sketch_of(job, state)
    while state.round < job.recipe.rounds:
        began = time.perf_counter()
        who, known = taking_part(job, state)
        try:
            state, record = one_round(job, engine, state, who, known, sketch)
        except Diverged as reason:
            spent = counted_bytes(job, Wire.of(state.theta, job.shared), known)
            reason.bytes_down, reason.bytes_up = (int(part.sum()) for part in spent)
            raise
        if _evaluation_is_due(job.recipe, state.round):
            test = evaluate(engine, job, state.theta, state.identity)
            if test is not None:
                record["test_accuracy"] = test.accuracy(test.paper_rule)
                record["test_accuracy_train_rule"] = test.accuracy(test.train_rule)
                record["test_loss"] = test.mean_loss(test.paper_rule)
                if job.recipe.algorithm != "local":
                    served = [test.served_by(j) for j in range(job.models)]
                    record["cluster_test_accuracy"] = [test.accuracy(rule) for rule in served]
                    record["cluster_test_loss"] = [test.mean_loss(rule) for rule in served]
                if job.metrics:
                    record["test_metrics"] = test.mean_metrics(test.metrics)
        record["seconds"] = round(time.perf_counter() - began, 4)
        on_round(state, record)
    return state


def sketch_of(job: Job, state: ClusterState) -> Sketch | None:
    """What updates are looked at by, where collapses are to be seen."""
    return make_sketch(state.theta, job.recipe.seed) if job.recipe.repairs else None


def taking_part(job: Job, state: ClusterState) -> tuple[Tensor, Tensor]:
    """M_t, and the identities of those who are sent their own model only (-1: judges all)."""
    who = without_judges(state, participants(job.recipe, state.round, job.federation.train.keys))
    return who, known_identity(job.recipe, state, who)


def one_round(
    job: Job, engine: Engine, state: ClusterState, who: Tensor, known: Tensor, sketch: Sketch | None
) -> tuple[ClusterState, Record]:
    """The state after a round, repaired where the recipe says so, and the record of it."""
    t = state.round
    drawn = sketch if job.recipe.participation < 1 or check_is_due(t) else None
    replies = train_live(engine, state.theta, who, known, t, drawn)
    if replies.answered is not None:  # of a real federation some may be missing
        who, known = who[replies.answered], known[replies.answered]
    check_finite(job.recipe, job.federation.train, f"in round {t + 1}", who, replies.loss)
    if not job.recipe.repairs:
        after = next_state(job, state, who, known, replies)
        return after, describe(job, state, after, who, known, replies)
    after, replies, events = repaired_state(job, engine, state, who, known, replies)
    return after, {**describe(job, state, after, who, known, replies), "events": events}


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
        "cluster_train_loss": None if local else _means(replies.loss, replies.identity, k),
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


def _means(loss: Tensor, identity: Tensor, k: int) -> list[float | None]:
    """Mean loss of each cluster's participants; None where it has none."""
    members = [loss[identity == j].double() for j in range(k)]
    return [float(own.mean()) if len(own) else None for own in members]


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


def _largest(clients: Clients) -> float:
    if not len(clients.x):  # the data are at the clients
        return math.nan
    if clients.x.dtype == torch.uint8:
        return float(clients.x.max()) / 255
    return float(clients.x.abs().max())


def _evaluation_is_due(recipe: Recipe, done: int) -> bool:
    every = recipe.evaluate_every
    return done == recipe.rounds or (every > 0 and done % every == 0)
