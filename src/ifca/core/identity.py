"""Which cluster is a client in (line 6), and when the server may stop asking (the communication saving)."""

from __future__ import annotations

import torch
from torch import Tensor

from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState


def identity(losses: Tensor) -> Tensor:
    """j-hat = argmin_j F_i(theta_j). losses: [..., k]; ties go to the lowest j, a NaN never wins."""
    return losses.nan_to_num(nan=torch.inf, posinf=torch.inf).argmin(-1)


def one_hot(j: Tensor, k: int) -> Tensor:
    """s_i: s_ij = 1{j = j-hat} (line 7)."""
    return j[..., None] == torch.arange(k, device=j.device)


def known_identity(recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """For each participant the one model it is sent (line 3), or -1: it is sent all k.

    Once identities are stable a client is sent its own model only, but for re-check rounds, for clients
    never seen, and for those that have not judged the models since an identity last changed.
    """
    if not _own_model_is_enough(recipe, state):
        return torch.full_like(who, -1)
    return torch.where(state.asked[who] >= state.changed, state.identity[who], -1)


def _own_model_is_enough(recipe: Recipe, state: ClusterState) -> bool:
    stable = recipe.stable_after is not None and state.unchanged >= recipe.stable_after
    return stable and state.round - state.checked < recipe.recheck_every


def rounds_unchanged(state: ClusterState, who: Tensor, asked: Tensor, found: Tensor) -> int:
    """Rounds in a row in which no participant's identity changed, counting this one.

    asked: [p] whether the client saw all k models; found: [p] its identity. A client seen for the first
    time has not changed; a round that re-confirmed nobody says nothing, so the count stays.
    """
    before = state.identity[who]
    confirmed = asked & (before >= 0)
    if not bool(confirmed.any()):
        return state.unchanged
    return 0 if bool((found != before)[confirmed].any()) else state.unchanged + 1
