"""Rounds of a method over an engine: sample, map, average, again. Functional: a round returns a new state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.callbacks import Record
from ifca.core.checks import capped_savings
from ifca.core.errors import Diverged, InvalidInput, TooFewClients
from ifca.core.ledger import Wire
from ifca.core.metrics import agreement, cluster_sizes
from ifca.core.recipe import Recipe
from ifca.core.rejections import left_out
from ifca.core.replies import Needs, Replies, Savings
from ifca.core.sampling import participants
from ifca.core.types import ClusterState, Params
from ifca.data import Clients
from ifca.engines.base import SUMS, Engine
from ifca.engines.live_models import train_live
from ifca.methods import Ask, Problem, Round
from ifca.training.checked import check_models, checked, is_checked
from ifca.training.early_stopping import asked_to_stop, held_out_losses, is_due, with_held_out
from ifca.training.evaluate import evaluate
from ifca.training.going_back import back_to_kept, looked_at
from ifca.training.job import Job
from ifca.training.privacy import drawn_from, most_rounds, out_of_budget, private_replies

OnRound = Callable[[ClusterState, Record], object]
"""Told the state after a round and its record; True: it was the last round."""
WAYS = ("down", "up")  # bytes go
NO_MORE = "with dp_epsilon or dp_noise it is given noised sums alone, and may ask clients for nothing else"


def train(job: Job, problem: Problem, engine: Engine, state: ClusterState, on_round: OnRound) -> ClusterState:
    """Rounds state.round to T - 1, or until training is stopped; on_round is told of each."""
    engine.leave_out(left_out(state.checks, len(state.identity)))
    most = most_rounds(job)
    while state.round < most and state.progress.stopped is None:
        began = time.perf_counter()
        state, record = _next_round(job, problem, engine, state)
        engine.leave_out(left_out(state.checks, len(state.identity)))
        if job.recipe.early_stopping and is_due(state.round, job.recipe.rounds):
            loss = float(held_out_losses(engine, job.federation.train, state).nanmean())
            record["held_out_loss"] = loss if math.isfinite(loss) else None
            state = with_held_out(state, loss)
        state = out_of_budget(job, state)
        last = state.round == most or state.progress.stopped is not None
        if last:
            state, record = finished(job, problem, engine, state, record)
        if last or _evaluation_is_due(job.recipe, state.round):
            record |= _tested(job, engine, state)
        record["seconds"] = round(time.perf_counter() - began, 4)
        if on_round(state, record) is True and not last:
            return asked_to_stop(state)
    return state


def _next_round(
    job: Job, problem: Problem, engine: Engine, before: ClusterState
) -> tuple[ClusterState, Record]:
    """The next round, and what was tried in its place before the step was halved."""
    who, known = taking_part(job, before)
    try:
        state, record = one_round(job, problem, engine, before, who, known)
    except Diverged as reason:
        reason.bytes_down, reason.bytes_up = (int(way.sum()) for way in spent(job, before))
        raise
    progress = state.progress
    now = [event for event in progress.halved if event["round"] == before.round]
    if now:
        more = dict(zip(WAYS, progress.unrecorded, strict=True))
        record |= {"halved": now, **{f"bytes_{way}": record[f"bytes_{way}"] + more[way] for way in WAYS}}
        state = replace(state, progress=replace(progress, unrecorded=(0, 0)))
    return state, record


def finished(
    job: Job, problem: Problem, engine: Engine, state: ClusterState, record: Record
) -> tuple[ClusterState, Record]:
    """The state that is kept after the last round, and that round's record with what was still decided."""
    if job.recipe.early_stopping:
        state = back_to_kept(state)
    after, events = job.method.finish(problem, state, ask_of(engine, job.recipe))
    if after is state:
        return state, record
    more = {f"bytes_{way}": getattr(after, f"bytes_{way}") - getattr(state, f"bytes_{way}") for way in WAYS}
    sent = {name: record[name] + int(value.sum()) for name, value in more.items()}
    told = [*record.get("events", []), *events]
    models = {"models": int(after.live.sum()), **({"events": told} if told or "events" in record else {})}
    return after, {**record, **sent, **models}


def _tested(job: Job, engine: Engine, state: ClusterState) -> Record:
    """What the test clients say after a round; nothing where there are none."""
    test = evaluate(engine, job, state, state.identity)
    if test is None:
        return {}
    record: Record = {
        "test_accuracy": test.accuracy(test.paper_rule),
        "test_accuracy_train_rule": test.accuracy(test.train_rule),
        "test_loss": test.mean_loss(test.paper_rule),
    }
    if not job.method.personal:
        served = [test.served_by(j) for j in range(job.models)]
        record["cluster_test_accuracy"] = [test.accuracy(rule) for rule in served]
        record["cluster_test_loss"] = [test.mean_loss(rule) for rule in served]
    return record | ({"test_metrics": test.mean_metrics(test.metrics)} if job.metrics else {})


def spent(job: Job, state: ClusterState) -> tuple[Tensor, Tensor]:
    """Bytes down and up by client [m] of a round that is given up; personal models never leave a client."""
    down, up = (torch.zeros(len(job.federation.train), dtype=torch.long) for _ in WAYS)
    if not job.method.personal:
        who, known = taking_part(job, state)
        wire = Wire.of(state.theta, state.live, job.shared)
        down[who], up[who] = wire.down(known >= 0), wire.up(known >= 0)
    return down, up


def taking_part(job: Job, state: ClusterState) -> tuple[Tensor, Tensor]:
    """M_t, and the identities of those who are sent their own model only (-1: judges all)."""
    there = torch.nonzero(~left_out(state.checks, len(state.identity)))[:, 0]
    keys = job.federation.train.keys[there.numpy()]
    drawn = there[participants(job.recipe, state.round, keys, drawn_from(job))]
    who = job.method.takes_part(job.recipe, state, drawn)
    return who, job.method.sends(job.recipe, state, who)


def one_round(
    job: Job, problem: Problem, engine: Engine, state: ClusterState, who: Tensor, known: Tensor
) -> tuple[ClusterState, Record]:
    """The state after a round, and the record of it."""
    needs = job.method.needs(job.recipe, state)
    if job.recipe.private and needs != SUMS:
        raise InvalidInput(f"{job.method.name}: {NO_MORE}")
    asked, replies = who, train_live(engine, state, who, known, needs)
    check_models(job.recipe, state.round, replies)
    if replies.answered is not None:  # some may be missing, or rejected
        who, known = who[replies.answered], known[replies.answered]
        if not len(who):
            raise TooFewClients(f"round {state.round + 1} had no usable reply of {len(asked)} clients")
    check_finite(job.recipe, job.federation.train, f"in round {state.round + 1}", who, replies.loss)

    if job.recipe.private:
        replies = private_replies(job, state, replies)
    now = Round(who, known, replies)
    after, events = job.method.server(problem, state, now, ask_of(engine, job.recipe))
    after = looked_at(job.recipe, state, after, who, replies.loss, replies.rejected)
    after, told = checked(job.recipe, job.federation.train.ids, state, after, asked, replies)
    record = {**describe(job, state, after, who, known, replies), **told}
    return after, record if events is None else {**record, "events": events}


def ask_of(engine: Engine, recipe: Recipe) -> Ask:
    """What a server may ask of this engine's clients beside a round; with differential privacy nothing."""

    def refused(*_asked: object, **_more: object) -> NoReturn:
        raise InvalidInput(f"a method's server: {NO_MORE}")

    if recipe.private:
        return Ask(refused, refused)

    def turn(state: ClusterState, some: Tensor, models: Tensor, needs: Needs = SUMS) -> Replies:
        return train_live(engine, state, some, models, needs)

    def compare(theta: Params, who: Tensor, own: Tensor, others: Tensor) -> Savings:
        said = engine.compare(theta, who, own, others)
        return capped_savings(said) if is_checked(recipe, engine) else said

    return Ask(turn, compare)


def describe(
    job: Job, before: ClusterState, after: ClusterState, who: Tensor, known: Tensor, replies: Replies
) -> Record:
    """The record of a round, from the states before and after it."""
    m, k, personal, t = len(job.federation.train), job.models, job.method.personal, before.round
    # Whose model was given up has no cluster now; in the round it had one.
    identity = torch.where(after.identity[who] >= 0, after.identity[who], replies.identity)
    sizes = [1] * m if personal else cluster_sizes(identity, k)
    record: Record = {
        "round": t,
        "step_size": job.recipe.step(t),
        "participants": len(who),
        "clients": None if len(who) == m else who.tolist(),  # None: all of them
        "identity": None if personal else identity.tolist(),
        "sent_all_models": int((known < 0).sum()),
        "sent_all_models_to": None if bool((known < 0).all()) else who[known < 0].tolist(),  # None: all
        "rounds_unchanged": after.unchanged,
        "train_loss": float(replies.loss.double().mean()),
        "cluster_sizes": None if personal else sizes,
        "cluster_train_loss": None if personal else _means(replies.loss, identity, k),
        "live_clusters": sum(size > 0 for size in sizes),
        "models": int(after.live.sum()),
        "bytes_down": int((after.bytes_down - before.bytes_down).sum()),
        "bytes_up": int((after.bytes_up - before.bytes_up).sum()),
    }
    if replies.clipped is not None:
        record |= {
            "clipped": float(replies.clipped.double().mean()),
            "moved": replies.total.weight.gt(0).tolist(),
        }
    true = job.federation.train.true_cluster
    if true is not None and not personal:
        record |= _recovered(true, after.identity, who, identity)
    return record


def _recovered(true: NDArray[np.int64], last: Tensor, who: Tensor, identity: Tensor) -> Record:
    """Recovered against true clusters: of the participants, and (..._known) of all clients known so far.

    true, last: [m] true cluster and last identity of each client, -1: not known; who, identity: [p].
    """
    round_alone = agreement(true[who.numpy()], identity.numpy())
    everybody = last.clone()
    everybody[who] = identity
    known = (everybody >= 0).numpy()
    so_far = round_alone if known.sum() == len(who) else agreement(true[known], everybody.numpy()[known])
    told = {f"{name}_known": value for name, value in so_far.items()}
    return {**round_alone, "known_clients": int(known.sum()), **told}


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
    return recipe.evaluate_every > 0 and done % recipe.evaluate_every == 0
