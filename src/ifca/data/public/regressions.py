"""The paper's synthetic data: a mixture of linear regressions, known up to the last theta*."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ifca.core.random import generator
from ifca.data.clients import Clients
from ifca.data.federation import Federation


def mixture_of_regressions(
    *,
    clients: int = 100,
    samples: int = 100,
    dimension: int = 1000,
    clusters: int = 2,
    separation: float = 1.0,
    noise: float = 0.1,
    norm: Literal["scaled", "unit"] = "scaled",
    test_samples: int = 0,
    seed: int = 0,
) -> tuple[Federation, Tensor]:
    """Draw x ~ N(0, I_d), y = <x, theta*_j> + eps, eps ~ N(0, noise^2); clusters of equal size (rounded).

    theta*_j is drawn from Bernoulli(0.5) per coordinate. norm "scaled" multiplies it by separation (R of
    the figures, as in the authors' code), "unit" rescales it to norm R (as in the paper's text): D1.
    Returns the federation and theta* [clusters, d]. Its linear models go through the origin, as the paper's.
    """
    star = torch.bernoulli(torch.full((clusters, dimension), 0.5), generator=generator(seed, "theta-star"))
    star = star * separation if norm == "scaled" else star * separation / star.norm(dim=1, keepdim=True)
    cluster = np.arange(clients) * clusters // clients

    def draw(part: str, n: int) -> Clients:
        x = torch.randn(clients, n, dimension, generator=generator(seed, part + "-x"))
        eps = noise * torch.randn(clients, n, generator=generator(seed, part + "-noise"))
        y = torch.einsum("mnd,md->mn", x, star[torch.from_numpy(cluster)]) + eps
        ids = tuple(str(i) for i in range(clients))
        offsets = np.arange(clients + 1, dtype=np.int64) * n
        return Clients(x.flatten(0, 1), y.flatten(), offsets, ids, cluster.astype(np.int64))

    test = draw("test", test_samples) if test_samples else None
    return Federation(draw("train", samples), test, through_origin=True), star
