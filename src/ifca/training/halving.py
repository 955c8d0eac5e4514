"""A step that diverges is halved, and training goes on from the best models so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from ifca.core.errors import Diverged
from ifca.core.recipe import Recipe
from ifca.core.rejections import forgiven
from ifca.core.types import ClusterState, Progress
from ifca.engines.base import Engine
from ifca.methods import Problem
from ifca.training.early_stopping import held_out_losses
from ifca.training.going_back import back_to_kept, halves, kept
from ifca.training.job import Job
from ifca.training.rounds import spent
from ifca.training.start import problem_of

MOST = 10  # times that a step is halved


@dataclass(frozen=True)
class Attempt:
    """A job with its step halved so many times, and what trains it."""

    job: Job
    engine: Engine
    problem: Problem


def attempt(job: Job, halvings: int) -> Attempt:
    """halvings: how often the step was halved."""
    if halvings:
        factor, recipe = 0.5**halvings, job.recipe
        erm = None if recipe.erm_step_size is None else recipe.erm_step_size * factor
        adaptive = recipe.server_optimizer in ("adam", "yogi")  # whose step does not follow the clients'
        server = recipe.server_step * factor if adaptive else recipe.server_step_size
        recipe = replace(recipe, server_step_size=server)
        recipe = replace(recipe.stepping(recipe.step_size * factor), erm_step_size=erm)
        job = replace(job, recipe=recipe, halvings=halvings)
    engine = job.make_engine()
    return Attempt(job, engine, problem_of(job, engine))


def begin(
    job: Job, restart: int, start: Callable[[Problem, int], ClusterState] | None = None
) -> tuple[Attempt, ClusterState]:
    """The state before round 0; a start that trains (that of one-shot clustering) may diverge, too.

    start: another one than the method's.
    """
    progress = Progress()
    while True:
        now = attempt(job, len(progress.halved))
        try:
            state = (start or now.job.method.start)(now.problem, restart)
        except Diverged as reason:
            progress = _halved(now.job.recipe, progress, 0, reason)
        else:
            return now, replace(state, progress=_with_first(now, state, progress))


def _with_first(now: Attempt, state: ClusterState, progress: Progress) -> Progress:
    """The progress of a training that can go back to its first state, with that one's held-out loss."""
    recipe, clients = now.job.recipe, now.job.federation.train
    if recipe.early_stopping:
        loss = float(held_out_losses(now.engine, clients, state).nanmean())
        return kept(progress, state, loss if math.isfinite(loss) else math.inf)
    return kept(progress, state, math.inf) if halves(recipe) else progress


def retreat(job: Job, state: ClusterState, reason: Diverged) -> ClusterState:
    """The state to try again from with half the step, or the error itself. state: of the round given up."""
    if state.progress.kept is None:
        raise reason
    checks, again = forgiven(state.checks)
    names = [job.federation.train.ids[i] for i in torch.nonzero(again)[:, 0].tolist()]
    progress = _halved(job.recipe, state.progress, state.round, reason, names)
    state = replace(state, checks=checks)
    if state.round == job.recipe.rounds or progress.stopped is not None:
        progress = replace(progress, unfinished=True)  # of the models that are kept now
    else:
        down, up = spent(job, state)
        before = progress.unrecorded
        progress = replace(progress, unrecorded=(before[0] + int(down.sum()), before[1] + int(up.sum())))
        state = replace(state, bytes_down=state.bytes_down + down, bytes_up=state.bytes_up + up)
    return back_to_kept(replace(state, progress=progress))


def _halved(
    recipe: Recipe, progress: Progress, t: int, reason: Diverged, again: Sequence[str] = ()
) -> Progress:
    """The progress with one halving more. t: rounds done; again: clients left out that are asked again."""
    if not halves(recipe):
        raise reason
    if len(progress.halved) == MOST:
        failure = Diverged(f"{reason} (it was halved {MOST} times)")
        failure.bytes_down = reason.bytes_down + progress.unrecorded[0]
        failure.bytes_up = reason.bytes_up + progress.unrecorded[1]
        raise failure from reason
    event = {
        "round": t,
        "step_size": recipe.step_size / 2,
        "back_to": 0 if progress.kept is None else progress.kept.round,
        "because": str(reason),
        **({"asked_again": list(again)} if again else {}),
    }
    return replace(progress, halved=(*progress.halved, event))
