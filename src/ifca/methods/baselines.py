"""The baselines as special cases: the identity is given, everything else is IFCA."""

from __future__ import annotations

import torch
from torch import Tensor

from ifca.core.recipe import Recipe


def number_of_models(recipe: Recipe, m: int) -> int:
    """Global: one model for all. Local: one per client. IFCA and one-shot: k."""
    return {"global": 1, "local": m}.get(recipe.algorithm, recipe.k)


def given_identity(recipe: Recipe, m: int) -> Tensor:
    """The identities known before the first round: [m], -1 where the client has to find out.

    Global is federated averaging (everybody in cluster 0); in local the server averages over one client,
    so each model is its client's own. One-shot learns its identities by clustering (Algorithm 1).
    """
    if recipe.algorithm == "global":
        return torch.zeros(m, dtype=torch.long)
    if recipe.algorithm == "local":
        return torch.arange(m)
    return torch.full((m,), -1)
