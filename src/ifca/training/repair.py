"""A round of IFCA that watches for collapse: core decides (core/collapse.py), the engine carries it out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ifca.core.ledger import Wire
from ifca.core.types import ClusterState
from ifca.engines.base import Engine, Replies
from ifca.engines.live_models import replaced, train_live
from ifca.methods.collapse import Event, Split, inspect
from ifca.methods.splitting import begun, settled
from ifca.methods.watch import check_is_due, paced, remember, watch_of
from ifca.training.job import Job
from ifca.training.next_state import next_state


def repaired_state(
    job: Job, engine: Engine, state: ClusterState, who: Tensor, known: Tensor, replies: Replies
) -> tuple[ClusterState, Replies, list[Event]]:
    """The state after the round with what was found and mended, and the replies as they were used."""
    seen = remember(state, who, known < 0, replies.identity, replies.losses, replies.sketch)
    loss = float(replies.loss.double().mean())
    if not check_is_due(state.round):
        watch = paced(watch_of(seen), state.theta, loss)
        after = next_state(job, state, who, known, replies, pace=watch.pace)
        return replace(after, watch=watch), replies, []
    order = torch.from_numpy(np.argsort(job.federation.train.keys, kind="stable"))
    decision = inspect(job.recipe, seen, who, order)
    events, down, up = (
        list(decision.events),
        torch.zeros_like(state.bytes_down),
        torch.zeros_like(state.bytes_up),
    )
    wire = Wire.of(state.theta, job.shared)
    for split in decision.splits:
        members = (replies.identity == split.cluster) & ~split.waits[who]
        group = split.group[who].clamp(min=0)
        if len(set(group[members].tolist())) <= len(split.places):
            continue  # a group without a participant in this round cannot train its copy
        seen = begun(
            job.recipe, seen, split, _losses(who[members], replies.loss[members], len(seen.identity))
        )
        replies = asked_again(engine, seen, who, members, group, split, replies)
        if replies.carried is None:  # where bytes are measured, these are among them
            once = torch.ones(int(members.sum()), dtype=torch.bool)
            down[who[members]] += wire.down(once)
            up[who[members]] += wire.up(once)
        events.append(_described(split, int(members.sum())))
    watch = paced(watch_of(seen), seen.theta, loss)
    after = next_state(job, replace(state, theta=seen.theta), who, known, replies, wire, watch.pace)
    identity = seen.identity.clone()
    identity[who] = replies.identity
    changed = bool(decision.drop) or len(events) > len(decision.events)
    after = replace(
        after,
        identity=identity,
        watch=watch,
        unchanged=0 if changed else after.unchanged,
        changed=state.round if changed else after.changed,
        bytes_down=after.bytes_down + down,
        bytes_up=after.bytes_up + up,
    )
    return settled(after, decision), replies, events


def asked_again(
    engine: Engine,
    state: ClusterState,
    who: Tensor,
    members: Tensor,
    group: Tensor,
    split: Split,
    replies: Replies,
) -> Replies:
    """The cluster's participants repeat their turn, each group on its copy; these sums replace the first."""
    place = torch.tensor([split.cluster, *split.places])[group[members]]
    again = train_live(engine, state.theta, who[members], place, state.round)
    identity = replies.identity.clone()
    identity[members] = place
    total, carried = replaced(replies.total, again.total, split.cluster), replies.carried
    if carried is not None and again.carried is not None:
        carried = carried[0] + again.carried[0], carried[1] + again.carried[1]
    return replies._replace(identity=identity, total=total, carried=carried)


def _losses(who: Tensor, loss: Tensor, m: int) -> Tensor:
    table = loss.new_full((m,), torch.nan)
    table[who] = loss
    return table


def _described(split: Split, asked: int) -> Event:
    return {
        "event": "split",
        "cluster": split.cluster,
        "into": [split.cluster, *split.places],
        "clients": torch.bincount(split.group[split.group >= 0]).tolist(),
        "separation": split.separation,
        "clear": split.clear,
        "asked_again": asked,
    }
