"""The center machine's part of a round: average, remember identities, count bytes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ifca.core.averages import gradient_averaging, model_averaging
from ifca.core.errors import Diverged
from ifca.core.identity import rounds_unchanged
from ifca.core.ledger import Wire
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, Params, live_models
from ifca.engines.base import Replies
from ifca.training.job import Job


def next_state(
    job: Job,
    state: ClusterState,
    who: Tensor,
    known: Tensor,
    replies: Replies,
    wire: Wire | None = None,
    pace: float = 1.0,
) -> ClusterState:
    """The state after the replies of a round; wire: of the models that were sent, where not the state's."""
    recipe, live = job.recipe, live_models(state.theta)
    if recipe.option == "gradient":
        theta = gradient_averaging(
            state.theta,
            replies.total,
            recipe.step(state.round),
            job.shared,
            apart=not recipe.estimates_identity,
            pace=pace,
        )
    else:
        theta = model_averaging(state.theta, replies.total, job.shared)
    _check_models(recipe, state.round, live, theta)
    identity, down, up = state.identity.clone(), state.bytes_down.clone(), state.bytes_up.clone()
    identity[who] = replies.identity
    if replies.carried is not None:
        down, up = down + replies.carried[0], up + replies.carried[1]
    else:
        sent, received = counted_bytes(job, wire or Wire.of(state.theta, job.shared), known)
        down[who] += sent
        up[who] += received
    asked = known < 0
    last_asked = state.asked.clone()
    last_asked[who[asked]] = state.round
    unchanged = rounds_unchanged(state, who, asked, replies.identity)
    return ClusterState(
        theta=theta,
        round=state.round + 1,
        identity=identity,
        unchanged=unchanged,
        checked=state.round if bool(asked.all()) else state.checked,
        changed=state.round if unchanged == 0 else state.changed,
        asked=last_asked,
        bytes_down=down,
        bytes_up=up,
    )


def counted_bytes(job: Job, wire: Wire, known: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes down and up of a round for each of its participants; a local model never leaves its client."""
    if job.recipe.algorithm == "local":
        return torch.zeros_like(known), torch.zeros_like(known)
    return wire.down(known >= 0), wire.up(known >= 0)


def _check_models(recipe: Recipe, t: int, live: Tensor, theta: Params) -> None:
    for name, value in theta.items():
        largest = float(value[live].abs().max())
        if not math.isfinite(largest):
            raise Diverged(
                f"training diverged: after round {t + 1} the parameter {name} is {largest}; "
                f"try a smaller step_size than {recipe.step_size}"
            )
