"""IFCA that does not collapse: what the server looks for between two rounds, and what it decides.

All clients begin on one model. Where the updates of a cluster's members fall into clear groups, two or more
populations share one model (overloaded): it is split, each group with a copy. A split is a trial: a model
whose members would be served as well by another one (twins) is given up again, and so is one that nobody
chooses (dead). Free places among the k wait for the next split. The evidence is what the server is sent
anyway: losses and one update per participant; no labels, no test data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, places_of
from ifca.methods.groups import Groups, clear, cut, find_groups
from ifca.methods.method import Event
from ifca.methods.watch import TRIAL, Watch, watch_of, window

FIRST_ATTEMPT = 3  # the round of the first split without clear groups; later ones wait twice as long
SHARE = 0.5  # of the fall of its members' loss that a split must account for
GAIN = 0.02  # share of its members' loss that a model must save them
ATTEMPT_GAIN = 0.05  # the same, for a model from an attempt
WAITS = 3  # of the groups of an attempt every third client waits, so that each has a judge
JUDGES = 3  # clients that can judge an attempt at least


@dataclass(frozen=True)
class Split:
    """One cluster whose members are to have different models."""

    cluster: int
    group: Tensor  # [m] 0: stays; g: goes to places[g - 1]; -1: not known
    waits: Tensor  # [m] clients that are not trained on while the split is tried
    places: list[int]
    separation: float
    clear: bool  # whether the groups are clearly apart; else the split is an attempt


@dataclass(frozen=True)
class Decision:
    """What is to be done after a round."""

    drop: list[int]  # models to give up
    keep: list[int]  # models whose trial ended well
    splits: list[Split]
    events: list[Event]


def inspect(recipe: Recipe, state: ClusterState, who: Tensor, order: Tensor) -> Decision:
    """Look for dead, twin and overloaded clusters. state: with this round's replies remembered.

    order: [m] the clients in an order of their own, so that it does not matter how they are listed.
    """
    drop, keep, watch = dead(recipe, state), list[int](), watch_of(state)
    events: list[Event] = [{"event": "dead", "cluster": j} for j in drop]
    attempt = set(watch.given[watch.given >= 0].tolist())
    alive = [j for j in places_of(state.live).tolist() if j not in drop]
    for j in sorted(alive, key=lambda j: int((state.identity == j).sum())):
        if j in attempt and not attempt.isdisjoint(drop):
            keep.append(j)  # its counterpart is gone, so the attempt is over
        verdict = None if j in keep else judge(recipe, state, j, [i for i in alive if i != j])
        if verdict is None:
            continue
        on_trial = verdict["loss_before"] is not None
        if not verdict.pop("serves"):
            drop.append(j)
            alive.remove(j)
            keep.append(verdict["other"])  # takes the members of j, so its own trial is over
            events.append({"event": "undone" if on_trial else "twins", **verdict})
        elif on_trial:
            keep.append(j)
            events.append({"event": "kept", **verdict})
    if len(alive) == 1 and bool(torch.isfinite(watch.before[alive]).all()):
        keep = alive  # nothing is left to compare it with
    splits = overloaded(recipe, state, alive, order, who)
    return Decision(drop, keep, splits, events)


def dead(recipe: Recipe, state: ClusterState) -> list[int]:
    """Live models whose members were all asked and chose another; a member that is not asked still counts."""
    t, watch = state.round, watch_of(state)
    if t < watch.due:
        return []
    chosen = torch.bincount(state.identity[state.identity >= 0], minlength=state.k) > 0
    old = t - watch.born >= window(recipe)
    return places_of(state.live & ~chosen & old).tolist()


def judge(recipe: Recipe, state: ClusterState, j: int, others: list[int]) -> Event | None:
    """Whether the members of model j need it: what they would lose under the best of the others.

    None: it is too early to say, or there is nobody to ask. A model must save its members a share of their
    loss. On trial, it must also account for half of the fall of that loss since the split, or halve it by
    itself. A model from an attempt is judged by clients of its group that no model has been trained on
    since, and must be certainly better for them or halve their loss: every model suits those it was
    trained on.
    """
    watch, t = watch_of(state), state.round
    if not others or t < max(watch.due, TRIAL):
        return None
    since = max(watch.until - 1, int(watch.born[[j, *others]].max()), t - max(window(recipe), TRIAL))
    attempt = bool((watch.given == j).any())
    member = (watch.given == j) & watch.held if attempt else state.identity == j
    member = member & (state.asked > since) & torch.isfinite(watch.losses[:, [j, *others]]).all(1)
    if not bool(member.any()) and not attempt:
        return None
    table = watch.losses.double()
    means, before = table[member].mean(0), float(watch.before[j])
    other = min(others, key=lambda i: float(means[i]))
    mine, theirs, on_trial = float(means[j]), float(means[other]), math.isfinite(before)
    serves = theirs - mine >= (ATTEMPT_GAIN if attempt else GAIN) * theirs
    if attempt:
        serves &= mine <= SHARE * theirs or _certain(table[member, other] - table[member, j])
    elif on_trial:
        due_to_it = mine < before and theirs - mine >= SHARE * (before - mine)
        if due_to_it and not serves and t <= recipe.rounds // 2:
            return None  # it earns what it saves, slowly: small steps
        serves &= mine <= SHARE * theirs or due_to_it
    return {
        "cluster": j,
        "other": other,
        "clients": int(member.sum()),
        "loss": mine if math.isfinite(mine) else None,
        "loss_under_other": theirs if math.isfinite(theirs) else None,
        "loss_before": before if on_trial else None,
        "serves": serves,
    }


def _certain(saved: Tensor) -> bool:
    """Whether what clients save is above zero beyond doubt."""
    n = len(saved)
    return n >= JUDGES and float(saved.mean()) >= (2 + 6 / n) * float(saved.std()) / n**0.5


def overloaded(
    recipe: Recipe, state: ClusterState, alive: list[int], order: Tensor, who: Tensor
) -> list[Split]:
    """Clusters whose members' updates fall into groups, while there are free places for them.

    Every group needs a participant of this round: who trains its copy.
    """
    watch, t = watch_of(state), state.round
    places = places_of(~state.live).tolist()
    splits, attempts = [], []
    for j in alive:
        recent = (state.identity == j) & (watch.seen > max(t - window(recipe), int(watch.born[j])))
        rows = order[recent[order]]
        if not places or bool(torch.isfinite(watch.before[j])):  # on trial itself
            continue
        points = watch.sketch[rows].double().numpy()
        here, groups = torch.isin(rows, who).numpy(), find_groups(points, len(places) + 1)
        if groups is not None and groups.has_all(here):
            splits.append(_split(len(order), j, rows, groups, places, clear=True))
            places = places[len(groups.sizes) - 1 :]
        elif groups is None and (weak := _fair_cut(points, here)) is not None:
            attempts.append((j, rows, weak))
    if splits or not places or not attempts or not _may_attempt(recipe, watch, t):
        return splits
    j, rows, weak = max(attempts, key=lambda attempt: attempt[2].separation / clear(min(attempt[2].sizes)))
    return [_split(len(order), j, rows, weak, places, clear=False)]


def _fair_cut(points: NDArray[np.float64], here: NDArray[np.bool_]) -> Groups | None:
    """The best cut in two, where both parts have a participant to train them and a client to judge them."""
    weak = cut(points, 2)
    return weak if weak is not None and weak.has_all(here) and min(weak.sizes) >= WAITS else None


def _split(m: int, j: int, rows: Tensor, groups: Groups, places: list[int], *, clear: bool) -> Split:
    group, waits = torch.full((m,), -1), torch.zeros(m, dtype=torch.bool)
    label = torch.from_numpy(groups.label)
    group[rows] = label
    if not clear:
        for g in range(len(groups.sizes)):
            waits[rows[label == g][WAITS - 1 :: WAITS]] = True
    return Split(j, group, waits, places[: len(groups.sizes) - 1], round(groups.separation, 4), clear)


def _may_attempt(recipe: Recipe, watch: Watch, t: int) -> bool:
    if bool(torch.isfinite(watch.before).any()) or t > recipe.rounds // 2:
        return False
    return t >= max(FIRST_ATTEMPT, 2 * watch.tried)
