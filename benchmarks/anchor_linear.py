"""BR-IFCA's linear mixture: five clusters and clients that follow no cluster, from random starts.

200 clients x 100 samples, d = 20, noise of variance 0.2; 5% of the clients have a theta* of their own, of
norm 3. The score of a run is the distance of each theta*_j to the nearest model, averaged over j.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifca.core.random import generator
from ifca.core.recipe import Recipe
from ifca.data import Federation
from ifca.data.clients import Clients
from ifca.models import linear
from ifca.runs.units.unit import Line
from ifca.training import Job, fit

TABLE, SETTING = "BR-IFCA", "linear mixture, 200 clients, 5% of no cluster"
K, M, N, D, NOISE, STRAY, NORM = 5, 200, 100, 20, 0.2**0.5, 10, 3.0
RECIPE: dict[str, Any] = {"k": K, "rounds": 300, "option": "gradient", "evaluate_every": 0}
STEP = 0.05
METHODS: dict[str, dict[str, Any]] = {
    "ifca": {"algorithm": "ifca"},
    "ifca (median)": {"algorithm": "ifca", "aggregation": "median"},
    "ifca-plain": {"algorithm": "ifca-plain"},
    "ifca-plain (median)": {"algorithm": "ifca-plain", "aggregation": "median"},
    "ifca-plain (median; told start)": {"algorithm": "ifca-plain", "aggregation": "median"},
}
TOLD = "ifca-plain (median; told start)"
DIFFERS = (
    "The source starts from models near the truth and gives no numbers in its code; here starts are random, "
    f"but for the row of the told start. Steps are {STEP} over all clients, {STEP / K} for each of five "
    "clusters. Distances, not percent: smaller is better."
)


def mixture(seed: int) -> tuple[Federation, Tensor]:
    """The federation, and theta* of the clusters [k, d]."""
    rng = generator(seed, "br-ifca")
    star = torch.randn(K + STRAY, D, generator=rng)
    star = NORM * star / star.norm(dim=1, keepdim=True)
    cluster = np.append(np.arange(M - STRAY) % K, K + np.arange(STRAY))
    x = torch.randn(M, N, D, generator=rng)
    y = torch.einsum("mnd,md->mn", x, star[torch.from_numpy(cluster)])
    y = y + NOISE * torch.randn(M, N, generator=rng)
    offsets, ids = np.arange(M + 1, dtype=np.int64) * N, tuple(str(i) for i in range(M))
    clients = Clients(x.flatten(0, 1), y.flatten(), offsets, ids, cluster)
    return Federation(clients, None, through_origin=True), star[:K]


def run(method: str, seed: int) -> Line:
    """Train one method and measure how far its models are from the truth."""
    federation, star = mixture(seed)
    recipe = Recipe(**{**RECIPE, "step_size": STEP, "seed": seed, **METHODS[method]})
    job = Job(federation, recipe, partial(linear, D))
    if method == TOLD:
        near = star + 0.1 * torch.randn(star.shape, generator=generator(seed, "br-ifca-told"))
        job = replace(job, warm_start={"fc1.weight": near[:, None]})
    state = fit(job).state
    models = state.theta["fc1.weight"].flatten(1)[state.live]
    distance = torch.cdist(star, models).min(1).values
    return {"distance": float(distance.mean()), "farthest": float(distance.max()), "live": len(models)}
