"""FedPer and FedRep: weight sharing turned inside out. The first layers are all clients', the head is one's.

In every round
1. participants are sent the base, and put their own head on it                         start, shared
2. FedPer: they train both together (client_round of core/client.py)
   FedRep: they first train the head on the base as it was sent, then the base below
   the new head, each for all steps of the round                                        fedrep_client
3. the server averages the bases                                                        server

The head is the last layer; `shared` in the config names the layers of the base instead.
Sources: FedPer, Arivazhagan et al. 2019; FedRep, Collins et al. 2021. Deviation: FedRep's authors take ten
passes for the head and one or five for the base; here both take the round's steps.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ifca.core.averages import parameters_of
from ifca.core.client import batches, estimate, gradient
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.sampling import Plan
from ifca.core.types import ClientReply, Data, Params, Task, select
from ifca.methods.personal_models import LIKE_LOCAL


def base(recipe: Recipe, names: list[str]) -> frozenset[str]:
    """The layers named by `shared`; none named: all but the last layer."""
    if recipe.shared:
        return parameters_of(names, recipe.shared)
    last = names[-1].rpartition(".")[0]
    found = frozenset(name for name in names if name.rpartition(".")[0] != last)
    if not found:
        raise InvalidInput(
            f"{recipe.algorithm}: the model has one layer, so there is no base below a head; "
            "choose a model with more, or another method"
        )
    return found


def fedrep_client(
    task: Task, recipe: Recipe, step: float, theta: Params, data: Data, plan: Plan, own: Tensor
) -> ClientReply:
    """The head on the base that was sent, then the base below the new head."""
    j, losses = estimate(task, theta, data, plan, own)
    model, below = select(theta, j), base(recipe, list(theta))
    for moving in (frozenset(theta) - below, below):
        for batch in batches(recipe.local_steps, task, data, plan):
            slope = gradient(task, model, batch)
            model = {n: v - step * slope[n] if n in moving else v for n, v in model.items()}
    return ClientReply(j, losses, model)


FEDPER = replace(
    LIKE_LOCAL,
    name="fedper",
    title="FedPer",
    about="FedPer: a base for all, a head for each client",
    shared=base,
)
FEDREP = replace(
    LIKE_LOCAL,
    name="fedrep",
    title="FedRep",
    about="FedRep: a base for all, a head for each client, trained one after the other",
    client=fedrep_client,
    shared=base,
)
