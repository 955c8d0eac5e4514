"""The farthest-client start: k models of clients, each that of the client whom those before serve worst.

In round 0, which is the start's
1. every participant trains the one initial model and sends its own          own_models
2. a random participant's model is the first of the k                        founded
3. participants say their lowest loss under those chosen so far; the model of
   the one with the largest is the next, until there are k                   founded

Source: FedJAX's k-means initialisation of HypCluster (Mansour et al. 2020). Deviation: clients train as in a
round, and it is one round of the run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ifca.core.errors import InvalidInput
from ifca.core.ledger import LOSS_BYTES, Wire
from ifca.core.random import bits
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, everywhere, places_of, select, without
from ifca.methods.averaging import check_models
from ifca.methods.method import Ask, Problem, Round
from ifca.methods.own_models import own_models, spent, turn_with


def one_model(state: ClusterState) -> ClusterState:
    """The state with its first model only: what everybody trains in the first round."""
    live = torch.arange(state.k) == 0
    return replace(state, theta=without(state.theta, places_of(~live)), live=live)


def is_due(recipe: Recipe, state: ClusterState) -> bool:
    """Whether the k models are still to be found."""
    return recipe.initial == "farthest" and not bool(state.live.all())


def founded(problem: Problem, state: ClusterState, now: Round, ask: Ask) -> ClusterState:
    """K models from those of the participants; nobody has chosen among them yet."""
    p, k, who = len(now.who), problem.models, now.who
    if p < k:
        raise InvalidInput(
            f'initial = "farthest" takes {k} models from clients of the first round, but there are only {p}'
        )
    assert now.replies.updates is not None
    first = {name: value[:1].expand(p, *value.shape[1:]) for name, value in state.theta.items()}
    own = own_models(problem, first, now.replies.updates, state.round)
    check_models(problem.recipe, state.round, own)
    order = bits(problem.recipe.seed, "farthest", problem.keys[who.numpy()])
    chosen, replies = [int(np.argmin(order))], [now.replies]
    while len(chosen) < k:
        everything = torch.full((p,), -1)
        replies.append(turn_with(ask, state, select(own, torch.tensor(chosen)), 0, who, everything))
        here = replies[-1].answered
        worst = torch.full((p,), -torch.inf, dtype=torch.float64)
        worst[torch.arange(p) if here is None else here] = replies[-1].loss.double()
        worst[chosen] = -torch.inf
        chosen.append(int(worst.argmax()))
    one = Wire.of(own, torch.ones(p), frozenset()).clustered
    sent = (1 + k * (k - 1) // 2) * one
    down, up = spent(state, who, replies, down=sent, up=one + (k - 1) * LOSS_BYTES)
    theta = select(own, torch.tensor(chosen))
    found = replace(state, theta=theta, live=everywhere(theta), round=state.round + 1)
    return replace(found, bytes_down=down, bytes_up=up)
