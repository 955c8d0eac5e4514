"""The center machine's part of a round that most methods share: average, remember identities, count bytes."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.averages import gradient_averaging, model_averaging
from ifca.core.errors import Diverged
from ifca.core.identity import rounds_unchanged
from ifca.core.ledger import Wire
from ifca.core.recipe import Recipe
from ifca.core.replies import Savings
from ifca.core.types import ClusterState, Params, everywhere, model_count
from ifca.methods.method import Problem, Round
from ifca.methods.server_optimiser import server_step

FASTER = 1.2  # option I: how much longer the next step of fewer models than k is, while the loss falls


def initial_state(theta: Params, identity: Tensor, live: Tensor | None = None) -> ClusterState:
    """A state before round 0: initial models, identities (-1: not known), an empty ledger."""
    none = torch.zeros_like(identity)
    return ClusterState(
        theta=theta,
        live=everywhere(theta) if live is None else live,
        round=0,
        identity=identity,
        unchanged=0,
        checked=-1,
        changed=0,
        asked=none - 1,
        bytes_down=none,
        bytes_up=none,
    )


def given_state(given: Params, identity: Tensor, k: int) -> ClusterState:
    """The same with the models of a warm start [c, ...]; the other places of k are free."""
    count = model_count(given)
    free = {name: value.new_zeros(k - count, *value.shape[1:]) for name, value in given.items()}
    theta = {name: torch.cat([value, free[name]]) for name, value in given.items()}
    return initial_state(theta, identity, torch.arange(k) < count)


def average(
    problem: Problem,
    state: ClusterState,
    now: Round,
    *,
    apart: bool = False,
    sent: bool = True,
    wire: Wire | None = None,
    pace: float = 1.0,
    models: Params | None = None,
    steps: frozenset[str] | None = None,
) -> ClusterState:
    """The state after the replies of a round (lines 13 to 15).

    apart: each cluster is a federation of its own, so option I divides by its own participants. sent: models
    go over the wire. wire: of those that were sent, where not the state's. pace: share of option I's step.
    models: the next ones, where they are no averages. steps: what the server's optimiser moves; None: all.
    """
    recipe, replies = problem.recipe, now.replies
    if models is not None:
        theta = models
    elif recipe.option == "gradient":
        theta = gradient_averaging(
            state.theta, replies.total, recipe.step(state.round), problem.shared, apart=apart, pace=pace
        )
    else:
        theta = model_averaging(state.theta, replies.total, problem.shared)
    moments = state.moments
    if sent and models is None:  # a client alone has no server
        theta, moments = server_step(recipe, state, theta, replies.total.weight, problem.shared, steps)
    if problem.shared:  # averages of shared coordinates reach the places without a model, too
        theta = _only_live(theta, state.live)
    down, up = _counted(problem, state, now, sent, wire)
    after = replace(_remembered(state, now), theta=theta, moments=moments, bytes_down=down, bytes_up=up)
    check_models(recipe, state.round, theta)  # last, because it waits for the GPU
    return after


def _remembered(state: ClusterState, now: Round) -> ClusterState:
    """Identities, and when they were last asked for and changed."""
    asked = now.known < 0
    identity, last_asked = state.identity.clone(), state.asked.clone()
    identity[now.who], last_asked[now.who[asked]] = now.replies.identity, state.round
    unchanged = rounds_unchanged(state, now.who, asked, now.replies.identity)
    return replace(
        state,
        round=state.round + 1,
        identity=identity,
        unchanged=unchanged,
        checked=state.round if bool(asked.all()) else state.checked,
        changed=state.round if unchanged == 0 else state.changed,
        asked=last_asked,
    )


def _counted(
    problem: Problem, state: ClusterState, now: Round, sent: bool, wire: Wire | None
) -> tuple[Tensor, Tensor]:
    """Bytes so far, down and up: measured where the engine measures, else what the round must carry."""
    down, up = state.bytes_down.clone(), state.bytes_up.clone()
    if now.replies.carried is not None:
        down, up = down + now.replies.carried[0], up + now.replies.carried[1]
    elif sent:
        wire = wire or Wire.of(state.theta, state.live, problem.shared)
        down[now.who] += wire.down(now.known >= 0)
        up[now.who] += wire.up(now.known >= 0)
    return down, up


def next_pace(pace: float, before: float, now: Round, least: float) -> tuple[float, float]:
    """The share of its step that option I takes now, and the participants' mean loss. before: the last one.

    In k equal clusters each model moves by gamma/k of its members' mean gradient. Fewer models begin at that
    pace, because a step that is right for k may be too long for one, and go faster while the loss falls.
    """
    loss = float(now.replies.loss.double().mean())
    pace = pace * FASTER if loss < before else pace / 2
    return min(1.0, max(least, pace)), loss


def with_comparison(state: ClusterState, wire: Wire, who: Tensor, found: Savings) -> ClusterState:
    """Count a comparison's bytes: the models down; up the samples, and two sums for each but the own one."""
    down, up = state.bytes_down.clone(), state.bytes_up.clone()
    if found.carried is not None:
        return replace(state, bytes_down=down + found.carried[0], bytes_up=up + found.carried[1])
    down[who] += wire.shared + wire.k * wire.clustered
    up[who] += 4 + 16 * (wire.k - 1)
    return replace(state, bytes_down=down, bytes_up=up)


def _only_live(theta: Params, live: Tensor) -> Params:
    return {
        name: torch.where(live.to(value.device).reshape(-1, *[1] * (value.dim() - 1)), value, 0)
        for name, value in theta.items()
    }


def check_models(recipe: Recipe, t: int, theta: Params) -> None:
    """Stop where a parameter is no number any more, with advice."""
    most = torch.stack([torch.linalg.vector_norm(value, torch.inf) for value in theta.values()]).tolist()
    for name, largest in zip(theta, most, strict=True):
        if not math.isfinite(largest):
            raise Diverged(
                f"training diverged: after round {t + 1} the parameter {name} is {largest}; "
                f"try a smaller step_size than {recipe.step_size}"
            )
