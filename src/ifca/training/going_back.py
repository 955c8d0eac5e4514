"""The state that a training can go back to: its best so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.errors import Diverged
from ifca.core.recipe import Recipe
from ifca.core.rejections import STEP
from ifca.core.replies import Rejection
from ifca.core.types import ClusterState, Progress

GROWTH = 2  # times the loss of the first round: more than a step that works does
BY_CHANCE = (
    1e-4  # how often the growth that is still taken for chance happens by it, where few clients are heard
)
MANY = 1e6  # a mean over so many clients is certain


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
    recipe: Recipe,
    before: ClusterState,
    after: ClusterState,
    who: Tensor,
    loss: Tensor,
    rejected: Sequence[Rejection] = (),
) -> ClusterState:
    """The state after a round, where a step that diverges is halved. loss: [p] of clients who, before it.

    The state before the round is kept if its mean loss is the lowest so far, and nobody stood out from the
    others as where the step is too long: models that were made without such clients suit the others. Where
    clients lose more than twice what they lost in the first round, and more than chance allows, training has
    diverged. A state that was gone back to is given a round: no step of the size that is left has made it.
    """
    progress, mean = after.progress, float(loss.double().mean())
    if not halves(recipe):
        return after
    if progress.first is None:
        first = torch.full((len(after.identity),), torch.nan, dtype=torch.float64)
        progress = replace(progress, first=first.index_copy(0, who, loss.double().cpu()))
    if not progress.halved or progress.halved[-1]["round"] < before.round:
        _check_growth(recipe, f"in round {before.round + 1}", progress, who, loss)
    firm = not any(one.kind in STEP for one in rejected)
    if not recipe.early_stopping and firm and mean < progress.kept_loss:
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
    """Who was not heard in the first round lost then, for all that is known, the mean of those who were."""
    assert progress.first is not None
    heard = progress.first.isfinite()
    first = progress.first.where(heard, progress.first[heard].mean())
    then, now = float(first[who].mean()), float(loss.double().mean())
    m = len(first)
    if now > most_growth(len(who), int(heard.sum()), m) * then > 0:
        raise Diverged(
            f"training diverged: {when} the mean loss is {now:.3g}, in the first "
            f"round it was {then:.3g}; try a smaller step_size than {recipe.step_size}"
        )


def most_growth(now: int, then: int, m: int) -> float:
    """How many times as large the mean loss of some clients may be as that of others in the first round.

    now, then: how many of all m are heard. A mean over few of them differs by chance: at worst, where each
    has one sample, the ratio of two such means follows an F distribution, as that of squared errors does.
    Means over all do not differ by chance (each count is corrected for a finite population).
    """
    from scipy.special import fdtri

    free = (min(n / max(1 - n / m, 1 / MANY), MANY) for n in (now, then))
    return max(GROWTH, float(fdtri(*free, 1 - BY_CHANCE)))
