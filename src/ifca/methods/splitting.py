"""What becomes of the state when a cluster is split, kept or given up."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, ClusterSum, without
from ifca.methods.collapse import Decision, Split
from ifca.methods.watch import TRIAL, watch_of, window

GIVEN = 3  # rounds in which the groups of an attempt are given their models


def begun(recipe: Recipe, state: ClusterState, split: Split, loss: Tensor) -> ClusterState:
    """The state with a split begun: copies of the model at new places, on trial. loss: [m] of each member.

    Groups that are not clearly apart are given their model for a while, or the copy that happens to be the
    better one would draw everybody.
    """
    theta = {name: value.clone() for name, value in state.theta.items()}
    for value in theta.values():
        value[split.places] = value[split.cluster].clone()
    watch = watch_of(state)
    born, before, identity = watch.born.clone(), watch.before.clone(), state.identity.clone()
    for g, j in enumerate([split.cluster, *split.places]):
        members = split.group == g
        identity[members] = j
        born[j], before[j] = state.round, float(loss[members & torch.isfinite(loss)].mean())
    watch = replace(watch, born=born, before=before, due=max(watch.due, state.round + TRIAL))
    if not split.clear:
        until = state.round + 1 + max(GIVEN, window(recipe))
        given = torch.where(split.group >= 0, identity, -1)
        watch = replace(
            watch,
            given=given,
            waits=split.waits,
            tried=state.round,
            held=torch.zeros_like(watch.held),
            until=until,
            due=until + max(TRIAL - GIVEN, window(recipe)),
        )
    live = state.live.index_fill(0, torch.tensor(split.places), True)
    return replace(state, theta=theta, live=live, identity=identity, memory=watch.as_memory())


def settled(state: ClusterState, decision: Decision) -> ClusterState:
    """The state after the averages: models given up, trials that ended well."""
    watch, identity, asked = watch_of(state), state.identity.clone(), state.asked.clone()
    gone = torch.isin(identity, torch.tensor(decision.drop, dtype=torch.long))
    identity[gone], asked[gone] = -1, -1
    over = torch.tensor([*decision.keep, *decision.drop], dtype=torch.long)
    before = watch.before.index_fill(0, over, torch.nan)
    given = torch.where(torch.isin(watch.given, over), -1, watch.given)
    gone_places = torch.tensor(decision.drop, dtype=torch.long)
    return replace(
        state,
        theta=without(state.theta, gone_places),
        live=state.live.index_fill(0, gone_places, False),
        identity=identity,
        asked=asked,
        memory=replace(watch, before=before, given=given).as_memory(),
    )


def replaced(total: ClusterSum, again: ClusterSum, place: int, fixed: frozenset[str]) -> ClusterSum:
    """The sums of a round in which one cluster's members were asked again: theirs are the second ones.

    fixed: shared parameters under a rule that is not additive; they stay as all participants first said.
    """
    first = {name: total.total[name].sum(0) / total.weight.sum() for name in fixed}
    kept = {name: value.clone() for name, value in total.total.items()}
    weight = total.weight.clone()
    weight[place] = 0
    for value in kept.values():
        value[place] = 0
    both = ClusterSum(kept, weight) + again
    for name, value in first.items():
        both.total[name][:] = both.weight.reshape(-1, *[1] * value.dim()) * value
    return both
