"""The server's optimiser, for each cluster by itself: what becomes of the mean change of a cluster's model.

Delta_j = the average of the round minus theta_j, in option I and option II alike; then
momentum (FedAvgM):  m_j <- b1 m_j + Delta_j;                                theta_j <- theta_j + eta m_j
adam (FedAdam):      m_j <- b1 m_j + (1 - b1) Delta_j
                     v_j <- b2 v_j + (1 - b2) Delta_j^2;    theta_j <- theta_j + eta m_j / (sqrt(v_j) + tau)
yogi (FedYogi):      the same with v_j <- v_j - (1 - b2) Delta_j^2 sign(v_j - Delta_j^2)
m begins at 0 and v at tau^2. FedAvgM is of Hsu, Qi and Brown (2019), the others of Reddi et al. (2021).

A cluster without participants keeps its model, its m and its v; a place that gets a new model begins anew.
Shared layers have one m and one v for all clusters, as they have one mean change. What a client of a personal
method keeps for itself is as the client has it.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.averages import running_statistics
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, Params, places_of

LIVE = "live"  # [k] which places have an m and a v; theirs are "first.NAME" and "second.NAME"


def server_step(
    recipe: Recipe,
    state: ClusterState,
    averages: Params,
    weight: Tensor,
    shared: frozenset[str],
    names: frozenset[str] | None = None,
) -> tuple[Params, Params]:
    """The next models and what is remembered. averages: those of the round [k, ...]; weight: [k].

    names: the parameters that are the server's to move, None: all.
    """
    if recipe.server_optimizer == "none" and recipe.server_step == 1:
        return averages, {}
    moved = (state.theta.keys() if names is None else names) - running_statistics(state.theta)
    kept, theta = _begun(recipe, state, shared, moved), dict[str, Tensor]()
    heard = torch.nonzero(weight > 0)[:, 0]
    if not len(heard):  # a round of nobody: shared layers rest, too
        return averages, kept
    live = places_of(state.live).to(heard.device)
    for name, old in state.theta.items():
        if name not in moved:  # a client's own; or a running variance, which has no direction to go on in
            theta[name] = averages[name]
            continue
        mine = live[:1] if name in shared else heard  # shared layers are alike at all live places
        slots = torch.zeros_like(mine) if name in shared else mine
        change = averages[name][mine].double() - old[mine].double()
        move = _move(recipe, name, change, kept, slots)
        now = (old[mine].double() + recipe.server_step * move).to(old.dtype)
        theta[name] = now.expand_as(old).clone() if name in shared else old.index_copy(0, mine, now)
    return theta, kept


def _move(recipe: Recipe, name: str, change: Tensor, kept: Params, slots: Tensor) -> Tensor:
    """Where the optimiser goes for a mean change; the slots of kept are written. change: [slots, ...]."""
    (b1, b2), tau, kind = recipe.server_betas, recipe.server_tau, recipe.server_optimizer
    if kind == "none":
        return change
    first, second = (kept.get(f"{which}.{name}") for which in ("first", "second"))
    assert first is not None
    mean = b1 * first[slots] + (change if kind == "momentum" else (1 - b1) * change)
    first[slots] = mean
    if second is None:
        return mean
    v, square = second[slots], change.square()
    v = b2 * v + (1 - b2) * square if kind == "adam" else v - (1 - b2) * square * torch.sign(v - square)
    second[slots] = v
    return mean / (v.sqrt() + tau)


def _begun(recipe: Recipe, state: ClusterState, shared: frozenset[str], moved: AbstractSet[str]) -> Params:
    """What is remembered, copied; where a place has a new model, as in the beginning."""
    kind, live = recipe.server_optimizer, state.live
    if kind == "none":
        return {}
    kept = {name: value.clone() for name, value in state.moments.items()}
    new = live & ~kept.get(LIVE, torch.zeros_like(live))
    for name, value in state.theta.items():
        if name not in moved:
            continue
        size = (1 if name in shared else len(live), *value.shape[1:])
        for which, start in (("first", 0.0), ("second", recipe.server_tau**2)):
            if which == "second" and kind == "momentum":
                continue
            key = f"{which}.{name}"
            if key not in kept:
                kept[key] = value.new_full(size, start, dtype=torch.float64)
            elif name not in shared:
                kept[key][new.to(value.device)] = start
    return {**kept, LIVE: live.clone()}


def forgotten(state: ClusterState, places: Tensor) -> ClusterState:
    """The state where some places have got other models: their optimisers begin anew. places: numbers."""
    if not state.moments:
        return state
    live = state.moments[LIVE].index_fill(0, places, False)
    return replace(state, moments={**state.moments, LIVE: live})
