"""Is a concept that returns given its old model? A score for streams in which clients change their law.

A client returns at step t where its concept differs from that of step t - 1 and somebody had this concept at
an earlier step. Which model is whose is what the steps before t say: concepts and models are paired one to
one, so that as many as possible of the clients' steps before t were served by the model paired with their
concept. A return is right where the client is served by the model that is paired with its concept. One to
one: a single model for everybody is nobody's but the most frequent concept's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Returns(NamedTuple):
    """How many clients' returns there were, and how many were served by the old model."""

    right: int
    returns: int

    @property
    def score(self) -> float | None:
        """The share of right ones; None: nobody returned."""
        return self.right / self.returns if self.returns else None


def reidentified(concepts: Ints, models: Ints) -> Returns:
    """concepts, models: [steps, clients], the concept of each client and the number of its model."""
    if concepts.shape != models.shape or concepts.ndim != 2:
        raise ValueError(f"concepts {concepts.shape} and models {models.shape} must be [steps, clients]")
    right = returns = 0
    for t in range(1, len(concepts)):
        known = np.unique(concepts[:t])
        back = (concepts[t] != concepts[t - 1]) & np.isin(concepts[t], known)
        if not back.any():
            continue
        paired = _paired(concepts[:t].ravel(), models[:t].ravel())
        returns += int(back.sum())
        mine = zip(concepts[t][back].tolist(), models[t][back].tolist(), strict=True)
        right += sum(paired.get(concept) == model for concept, model in mine)
    return Returns(right, returns)


def _paired(concepts: Ints, models: Ints) -> dict[int, int]:
    """Concept -> its model, by most common steps; a concept without one is left out."""
    from scipy.optimize import linear_sum_assignment  # here: see core/metrics.py

    names, numbers = np.unique(concepts), np.unique(models)
    together = np.array([[np.sum((concepts == c) & (models == j)) for j in numbers] for c in names])
    rows, columns = linear_sum_assignment(-together)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return {int(names[i]): int(numbers[j]) for i, j in pairs if together[i, j] > 0}
