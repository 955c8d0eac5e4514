"""How a method goes on with the models of an earlier run where the clients' data have changed.

Whoever a model fits begins with it. Clients that no model fits are put into groups (founding.py) on free
places, each group with a copy of the model that loses least for it, and the referee (referee.py) decides
which groups need a model of their own: by the same tests, at the same level, on samples set aside. Models of
the earlier run are never given up, so that a concept which nobody has now can come back.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.identity import identity
from ifca.core.types import ClusterState, model_count, places_of
from ifca.methods.averaging import given_state
from ifca.methods.founding import founded
from ifca.methods.groups import first_memory, parted
from ifca.methods.method import Problem


def continued_start(problem: Problem, losses: Tensor, misfit: Tensor) -> ClusterState:
    """The state before round 0. losses: [m, c] of the c earlier models; misfit: [m] whom none of them fits.

    Where nobody is a misfit, or no place is free, this is Algorithm 2 from the earlier models.
    """
    assert problem.given is not None
    best, old = identity(losses), model_count(problem.given)
    state = given_state(problem.given, best, problem.models)
    free = places_of(~state.live)
    if not len(free) or not bool(misfit.any()):
        return replace(state, identity=torch.full_like(best, -1))
    groups = _groups_of(problem, misfit, len(free))
    group = torch.where(misfit, free[groups], best)
    for j in free.tolist():  # a group begins with the one model that loses least for all its clients
        mine = group == j
        if bool(mine.any()):
            best = torch.where(mine, int(identity(losses[mine].mean(0))), best)
    memory = first_memory(group, problem.models, old)
    return parted(replace(state, identity=best), memory, group)[0]


def _groups_of(problem: Problem, misfit: Tensor, most: int) -> Tensor:
    """Groups of the misfits by what they tell of their data: [m], 0 for those who tell nothing."""
    solutions = problem.solve()
    here = solutions._replace(answered=misfit & solutions.answered)
    if not bool(here.answered.any()):
        return torch.zeros_like(misfit, dtype=torch.long)
    return founded(here, problem.compare, most, problem.keys, problem.recipe.alpha)[0].clamp(min=0)
