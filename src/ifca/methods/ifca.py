"""IFCA that does not collapse: Algorithm 2 between the server's decisions (collapse.py) on its clusters.

All clients begin on one model. Between two rounds the server looks for clusters to split, keep and give up.
Where a cluster is split its participants are asked once more in the same round, each group on its copy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ifca.core.errors import TooFewClients
from ifca.core.identity import known_identity
from ifca.core.ledger import Wire
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs, Replies
from ifca.core.sketch import make_sketch
from ifca.core.types import ClusterState, ClusterSum, Params, model_count, without
from ifca.methods.aggregation import rule_of
from ifca.methods.averaging import average, initial_state
from ifca.methods.collapse import Decision, Split, inspect
from ifca.methods.ifca_plain import choose
from ifca.methods.method import Ask, Event, Method, Problem, Round, grow
from ifca.methods.splitting import begun, replaced, settled
from ifca.methods.watch import begin, check_is_due, paced, remember, watch_of, without_judges


def start(problem: Problem, restart: int) -> ClusterState:
    """One model at the first of k places, or those of a warm start; nobody's identity is known."""
    nobody = torch.full((problem.m,), -1)
    if problem.given is None:
        drawn = problem.draw(restart, 0)
        theta, models = without(drawn, torch.arange(1, problem.models)), 1
    else:
        theta, models = _at_first_places(problem.given, problem.models), model_count(problem.given)
    live = torch.arange(problem.models) < models
    memory = begin(problem.m, problem.models).as_memory() if problem.models > 1 else {}
    return replace(initial_state(theta, nobody, live), memory=memory)


def _at_first_places(given: Params, k: int) -> Params:
    zeros = {name: value.new_zeros(k, *value.shape[1:]) for name, value in given.items()}
    return {name: torch.cat([value, zeros[name][len(value) :]]) for name, value in given.items()}


def takes_part(_recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """While a split is tried, some clients of its groups wait, to be honest judges after it."""
    return without_judges(watch_of(state), state.round, who) if state.memory else who


def sends(recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """All models, or its own where identities are stable; while a split is tried, its groups get theirs."""
    known = known_identity(recipe, state, who)
    if state.memory and state.round < (watch := watch_of(state)).until:
        known = torch.where(watch.given[who] >= 0, watch.given[who], known)
    return known


def needs(recipe: Recipe, state: ClusterState) -> Needs:
    """Losses; and what updates are looked at by, in rounds after which clusters are looked for."""
    if not state.memory:
        return Needs()
    drawn = recipe.participation < 1 or check_is_due(state.round)
    return Needs(losses=True, sketch=make_sketch(state.theta, recipe.seed) if drawn else None)


def server(
    problem: Problem, state: ClusterState, now: Round, ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """The averages, and what was found and mended."""
    if not state.memory:  # k = 1
        return average(problem, state, now), None
    replies = now.replies
    seen = remember(state, now.who, now.known < 0, replies.identity, replies.losses, replies.sketch)
    loss = float(replies.loss.double().mean())
    if not check_is_due(state.round):
        watch = paced(watch_of(seen), state.live, loss)
        return replace(average(problem, state, now, pace=watch.pace), memory=watch.as_memory()), []
    order = torch.from_numpy(np.argsort(problem.keys, kind="stable"))
    decision = inspect(problem.recipe, seen, now.who, order)
    repeated = _Repeated(problem, seen, now)
    for split in decision.splits:
        repeated.try_split(split, ask)
    return _decided(problem, state, repeated, decision, loss)


class _Repeated:
    """A round in which the members of split clusters were asked once more."""

    def __init__(self, problem: Problem, seen: ClusterState, now: Round) -> None:
        self.recipe, self.state, self.now, self.events = problem.recipe, seen, now, list[Event]()
        self.fixed = frozenset() if rule_of(problem.recipe).additive else problem.shared
        self.wire = Wire.of(seen.theta, seen.live, problem.shared)
        self.down, self.up = torch.zeros_like(seen.bytes_down), torch.zeros_like(seen.bytes_up)

    def try_split(self, split: Split, ask: Ask) -> None:
        """Begin a split and let its participants repeat their turn, each group on its copy."""
        who, _, replies = self.now
        members = (replies.identity == split.cluster) & ~split.waits[who]
        group = split.group[who].clamp(min=0)
        if len(set(group[members].tolist())) <= len(split.places):
            return  # a group without a participant in this round cannot train its copy
        loss = replies.loss.new_full((len(self.state.identity),), torch.nan)
        loss[who[members]] = replies.loss[members]
        after = begun(self.recipe, self.state, split, loss)
        place = torch.tensor([split.cluster, *split.places])[group[members]]
        try:
            again = ask(after, who[members], place)
        except TooFewClients:  # the first replies were enough: without a split
            return
        self.now = self.now._replace(replies=_with_bytes(replies, again))
        if again.answered is not None:
            members[members.clone()], place = again.answered, place[again.answered]
        if len(set(place.tolist())) <= len(split.places):
            return  # a group of which nobody answered again
        self.state = after
        total = replaced(replies.total, again.total, split.cluster, self.fixed)
        self.now = self.now._replace(replies=_merged(self.now.replies, total, members, place))
        if replies.carried is None:  # where bytes are measured, these are among them
            once = torch.ones(int(members.sum()), dtype=torch.bool)
            self.down[who[members]] += self.wire.down(once)
            self.up[who[members]] += self.wire.up(once)
        self.events.append(_described(split, int(members.sum())))


def _merged(replies: Replies, total: ClusterSum, members: Tensor, place: Tensor) -> Replies:
    """The second replies of a cluster's members in place of their first."""
    identity = replies.identity.clone()
    identity[members] = place
    return replies._replace(identity=identity, total=total)


def _with_bytes(replies: Replies, again: Replies) -> Replies:
    """The first replies, with the measured bytes of both."""
    if replies.carried is None or again.carried is None:
        return replies
    both = zip(replies.carried, again.carried, strict=True)
    down, up = (first + second for first, second in both)
    return replies._replace(carried=(down, up))


def _decided(
    problem: Problem, state: ClusterState, repeated: _Repeated, decision: Decision, loss: float
) -> tuple[ClusterState, list[Event]]:
    """The averages over the round as it was repeated, and the state after the decision."""
    seen, now = repeated.state, repeated.now
    watch = paced(watch_of(seen), seen.live, loss)
    before = replace(state, theta=seen.theta, live=seen.live)
    after = average(problem, before, now, wire=repeated.wire, pace=watch.pace)
    identity = seen.identity.clone()
    identity[now.who] = now.replies.identity
    changed = bool(decision.drop) or bool(repeated.events)
    # After a split nobody has judged the new models yet, not even this round's participants.
    since = state.round + 1 if repeated.events else state.round
    after = replace(
        after,
        identity=identity,
        memory=watch.as_memory(),
        unchanged=0 if changed else after.unchanged,
        changed=since if changed else after.changed,
        bytes_down=after.bytes_down + repeated.down,
        bytes_up=after.bytes_up + repeated.up,
    )
    return settled(after, decision), [*decision.events, *repeated.events]


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


def joined(recipe: Recipe, state: ClusterState, new: int) -> ClusterState | None:
    """Nothing is remembered of clients that join."""
    memory = watch_of(state).widened(new).as_memory() if state.memory else {}
    after = grow(recipe, state, new)
    return None if after is None else replace(after, memory=memory)


IFCA = Method(
    name="ifca",
    title="IFCA",
    about="IFCA: one model per cluster, clusters found and mended while training",
    start=start,
    takes_part=takes_part,
    sends=sends,
    needs=needs,
    server=server,
    serves=choose,
    joined=joined,
    chooses=True,
    at_most_k=True,
)
