"""FedBN: one model for all but for the batch-norm layers, which every client keeps.

In every round
1. participants are sent the shared parameters, and put their own batch-norm layers on them     start, shared
2. they train both together (client_round of core/client.py)
3. the server averages the shared parameters                                                    server

A batch-norm layer is its parameters and its running statistics. Needs `batch_norm = "client"`.
Source: Li, Jiang, Zhang, Kamp, Dou 2021. Deviations: none known.
"""

from __future__ import annotations

from dataclasses import replace

from ifca.core.averages import running_statistics
from ifca.core.client import client_round
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.methods.method import Method
from ifca.methods.personal_models import LIKE_LOCAL


def shared(recipe: Recipe, names: list[str]) -> frozenset[str]:
    """All; shared_parameters (registry.py) takes the batch-norm layers out."""
    if recipe.batch_norm != "client":
        raise InvalidInput(
            f'fedbn: clients keep their batch-norm layers, so batch_norm must be "client", got '
            f'"{recipe.batch_norm}"'
        )
    if not running_statistics(names):
        raise InvalidInput("fedbn: the model has no batch-norm layers that a client could keep; use global")
    return frozenset(names)


def check_batch_norm(method: Method, recipe: Recipe, names: list[str]) -> None:
    """Refuse batch norm where running statistics would be lost, or have nobody to keep them.

    names: entries of the model.
    """
    if not running_statistics(names):
        return
    if recipe.option == "gradient":
        raise InvalidInput('batch_norm: gradients carry no running statistics, so option must be "model"')
    if method.client is not client_round:
        raise InvalidInput(
            f"{recipe.algorithm}: its clients take steps of their own, which do not follow the running "
            "statistics of batch norm; use GroupNorm, or a method whose clients train as in the paper (ifca, "
            "global, fedbn)"
        )
    if recipe.batch_norm == "client" and not method.personal:
        raise InvalidInput(
            f'batch_norm is "client", but {recipe.algorithm} has no model per client that could keep its own '
            'layers; use algorithm fedbn, fedper or local, or batch_norm = "average"'
        )


FEDBN = replace(
    LIKE_LOCAL,
    name="fedbn",
    title="FedBN",
    about="FedBN: one model for all, with batch-norm layers of each client's own",
    shared=shared,
)
