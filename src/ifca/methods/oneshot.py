"""Algorithm 1, one-shot clustering: its line 2. Lines 1 and 3 are local and clustered training."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.types import Params


class Clusterer(Protocol):
    """Anything with scikit-learn's fit_predict."""

    def fit_predict(self, X: Any) -> Any:
        """Points [m, d] -> cluster numbers [m]."""
        ...


def cluster_models(erm: Params, clusterer: Clusterer, k: int) -> Tensor:
    """Center machine clusters the clients' local solutions theta~_i into S_1, ..., S_k. erm: [m, ...]."""
    points = torch.cat([value.flatten(1) for value in erm.values()], dim=1).double().cpu().numpy()
    labels = torch.as_tensor(clusterer.fit_predict(points)).long()
    if labels.shape != (len(points),) or int(labels.min()) < 0 or int(labels.max()) >= k:
        raise InvalidInput(
            f"the clusterer must give each of {len(points)} clients a cluster from 0 to {k - 1}"
        )
    return labels
