"""Early stopping: the clients' loss on samples that they set aside says when training no longer helps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ifca.core.sampling import count_aside
from ifca.core.types import ClusterState, places_of
from ifca.data import Clients
from ifca.engines.base import Engine
from ifca.training.going_back import kept

EACH, EVERY = 20, 5  # the held-out loss is asked for after each of so many rounds, then after every fifth
WAIT = 10  # rounds without a lower loss, at least
BY_CALLBACK = "a callback asked to stop"


def held_out_losses(engine: Engine, clients: Clients, state: ClusterState) -> Tensor:
    """Each client's loss under its own model on the samples that it set aside; NaN: it has none. [m].

    A client that was not asked yet for its cluster is judged by the first model.
    """
    first = int(places_of(state.live)[0])
    scores = engine.score_aside(state.theta, torch.where(state.identity < 0, first, state.identity))
    loss = scores.loss[:, 0].double()
    return torch.where(torch.from_numpy(count_aside(clients.sizes)) > 0, loss, math.nan)


def is_due(done: int, most: int) -> bool:
    """Whether the held-out loss is asked for after so many rounds."""
    return done <= EACH or done % EVERY == 0 or done == most


def last_round(best: int) -> int:
    """When to stop if the loss was lowest after round best: half as many rounds again, at least 10."""
    return max(best + WAIT, math.ceil(1.5 * best))


def with_held_out(state: ClusterState, loss: float) -> ClusterState:
    """The state, which is kept if its held-out loss is the lowest so far."""
    progress = state.progress
    if loss < progress.kept_loss:
        return replace(state, progress=kept(progress, state, loss))
    if progress.kept is not None and state.round >= last_round(progress.kept.round):
        return replace(state, progress=replace(progress, stopped=_why(state)))
    return state


def asked_to_stop(state: ClusterState) -> ClusterState:
    """The state of a training that a callback ends."""
    return replace(state, progress=replace(state.progress, stopped=BY_CALLBACK, unfinished=True))


def ending(state: ClusterState, *, early_stopping: bool) -> dict[str, Any] | None:
    """How a training ended, for its summary; None: it did the rounds that were asked for."""
    progress = state.progress
    if progress.stopped is None and not early_stopping:
        return None
    found: dict[str, Any] = {"rounds": state.round, "why": progress.stopped or "that was the most allowed"}
    if early_stopping and progress.kept is not None:
        found |= {"kept_round": progress.kept.round, "held_out_loss": progress.kept_loss}
    return found


def _why(state: ClusterState) -> str:
    best = state.progress.kept
    assert best is not None
    return f"the held-out loss did not fall any more after round {best.round}"
