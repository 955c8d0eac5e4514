"""Ditto: a common model by federated averaging, and one of each client's own that is pulled towards it.

In every round a participant
1. trains the common model w from the one it was sent, as in federated averaging
2. takes as many steps on its own model v:  v <- v - gamma (grad F_i(v) + lambda (v - w_sent))
3. sends w; v stays                                                             shared: common_names

Source: Li et al. 2021. lambda is `ditto_lambda`. Deviations: own steps are as many as common ones, on
the same batches; on Flower the server keeps v for the client between its turns.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ifca.core.client import batches, estimate, gradient, local_step
from ifca.core.recipe import Recipe
from ifca.core.sampling import Plan
from ifca.core.types import ClientReply, Data, Params, Task, select
from ifca.methods.personal_models import WITH_COMMON, common_part, own_part, widely


def client(
    task: Task, recipe: Recipe, step: float, theta: Params, data: Data, plan: Plan, own: Tensor
) -> ClientReply:
    """Both models, from the same samples."""
    j, losses = estimate(task, theta, data, plan, own)
    sent = common_part(select(theta, j))
    w, v = sent, own_part(select(theta, j))
    for batch in batches(recipe.local_steps, task, data, plan):
        w, slope = local_step(task, w, step, batch), gradient(task, v, batch)
        pull = recipe.ditto_lambda * (batch.weight.sum() > 0)  # no samples: no step
        v = {n: x - step * (slope[n] + pull * (x - sent[n])) for n, x in v.items()}
    return ClientReply(j, losses, widely(v, w))


DITTO = replace(
    WITH_COMMON,
    name="ditto",
    title="Ditto",
    about="Ditto: a model of each client's own, pulled towards a common one",
    client=client,
)
