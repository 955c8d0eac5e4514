"""The first round's clients are dealt to the models at random, as CLoVE's authors do for IFCA, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ifca.core.random import UInts, bits
from ifca.core.recipe import Recipe
from ifca.core.sampling import participants
from ifca.core.types import ClusterState, places_of
from ifca.methods.method import Problem


def with_dealt(problem: Problem, state: ClusterState, restart: int) -> ClusterState:
    """The state before round 0, whose participants have a model each."""
    who, places = participants(problem.recipe, 0, problem.keys), places_of(state.live)
    model = places[dealt(problem.recipe.seed, restart, problem.keys[who.numpy()], len(places))]
    return replace(state, identity=state.identity.index_copy(0, who, model))


def is_dealt(recipe: Recipe, state: ClusterState) -> bool:
    """Whether clients are dealt their models in this round."""
    return recipe.initial == "dealt" and state.round == 0


def dealt(seed: int, restart: int, keys: UInts, k: int) -> Tensor:
    """A random model for each client [p]; the first k in a random order get one model each."""
    order = np.argsort(bits(seed, "clove-order", restart, keys), kind="stable")
    model = (bits(seed, "clove-deal", restart, keys) % np.uint64(k)).astype(np.int64)
    model[order[:k]] = np.arange(min(k, len(keys)))
    return torch.from_numpy(model)
