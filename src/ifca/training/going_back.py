"""The state that a training can go back to: its best so far."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.errors import Diverged
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, Progress

GROWTH = 2  # times the loss of the first round: more than a step that works does


def kept(progress: Progress, state: ClusterState, loss: float) -> Progress:
    """The progress with a state to go back to; loss: what it is judged by."""
    return replace(progress, kept=replace(state, progress=Progress()), kept_loss=loss)


def back_to_kept(state: ClusterState) -> ClusterState:
    """The models that are kept, after the rounds and with the bytes of the state."""
    if state.progress.kept is None:
        return state
    spent = {name: getattr(state, name) for name in ("round", "bytes_down", "bytes_up", "checks", "progress")}
    return replace(state.progress.kept, **spent)


def halves(recipe: Recipe) -> bool:
    """Whether a step that diverges is halved. With differential privacy no loss decides what is kept."""
    return recipe.on_divergence == "halve" and not recipe.private


def looked_at(
    recipe: Recipe, before: ClusterState, after: ClusterState, who: Tensor, loss: Tensor
) -> ClusterState:
    """The state after a round, where a step that diverges is halved. loss: [p] of clients who, before it.

    The state before the round is kept if its mean loss is the lowest so far; where the same clients lose more
    than twice what they lost in the first round, training has diverged.
    """
    progress, mean = after.progress, float(loss.double().mean())
    if not halves(recipe):
        return after
    if progress.first is None:
        first = torch.full((len(after.identity),), torch.nan, dtype=torch.float64)
        progress = replace(progress, first=first.index_copy(0, who, loss.double().cpu()))
    _check_growth(recipe, f"in round {before.round + 1}", progress, who, loss)
    if not recipe.early_stopping and mean < progress.kept_loss:
        progress = kept(progress, before, mean)
    return replace(after, progress=progress)


def check_last(recipe: Recipe, last: ClusterState, own: Tensor) -> None:
    """As after every round, but for the last: nobody trains the models that it made. own: [m], NaN: unknown.

    Models that were gone back to are not looked at again.
    """
    if halves(recipe) and last.progress.first is not None and not last.progress.unfinished:
        who = torch.nonzero(~own.isnan())[:, 0].cpu()
        _check_growth(recipe, "after the last round", last.progress, who, own[who.to(own.device)])


def _check_growth(recipe: Recipe, when: str, progress: Progress, who: Tensor, loss: Tensor) -> None:
    assert progress.first is not None
    known = progress.first[who].isfinite()
    then, now = float(progress.first[who][known].mean()), float(loss.double().cpu()[known].mean())
    if now > GROWTH * then > 0:
        raise Diverged(
            f"training diverged: {when} the mean loss is {now:.3g}, in the first "
            f"round it was {then:.3g}; try a smaller step_size than {recipe.step_size}"
        )
