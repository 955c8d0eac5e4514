"""Which model a client without labels gets: by how confident the models are, and how far that can be trusted.

A model is more confident on samples of the kind that it was trained on, but some models are always more
confident than others. So each model's confidence (the mean over samples of its largest probability) is
measured from its own mean over clients whose cluster is known by their labels, cluster by cluster. Where such
clients exist they are tried in the same way, each without itself: how many would get their right model is how
sure the answer is. Two groups with the same features and opposite answers cannot be told apart like this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.use.trained import Trained

CHANCE = 0.05  # p of as many right choices by chance, above which confidence is no help

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """What clients with labels say of the models' confidences."""

    confidence: Floats  # [r, live] of each such client, under each model
    cluster: NDArray[np.int64]  # [r] its place among the live models

    @property
    def right(self) -> int:
        """How many would get their model by confidence alone, judged without themselves."""
        rows = range(len(self.cluster))
        return sum(self._choice(i) == int(self.cluster[i]) for i in rows)

    @property
    def p(self) -> float:
        """Of as many right choices by chance, each as likely as a client of the largest cluster."""
        n = len(self.cluster)
        if not n:
            return 1.0
        from scipy.stats import binom  # here: it takes a second to import

        share = float(np.bincount(self.cluster).max() / n)
        return float(binom.sf(self.right - 1, n, share))

    def centre(self, without: int | None = None) -> Floats:
        """[live] each model's mean confidence over the clusters' means."""
        kept = np.arange(len(self.cluster)) != (-1 if without is None else without)
        own = self.cluster[kept]
        means = [self.confidence[kept][own == j].mean(0) for j in np.unique(own).tolist()]
        return np.mean(means, axis=0) if means else np.zeros(self.confidence.shape[1])

    def _choice(self, i: int) -> int:
        return int(np.argmax(self.confidence[i] - self.centre(i)))


def largest_probabilities(trained: Trained, x: Tensor) -> Floats:
    """[n, live] of each sample under each model."""
    with torch.no_grad():
        outputs = [trained.task.output(trained.model(j), x) for j in trained.live]
    return np.stack([one.double().softmax(-1).amax(-1).numpy() for one in outputs], 1)


def by_confidence(trained: Trained, x: Tensor, calibration: Calibration, was: int | None) -> dict[str, Any]:
    """The model of a client without labels, and how sure that is. was: its cluster in the run."""
    each = largest_probabilities(trained, x)
    above = each.mean(0) - calibration.centre()
    order = np.argsort(-above, kind="stable")
    place, errors = int(order[0]), None
    if len(order) > 1:
        gap = each[:, place] - each[:, int(order[1])]
        spread = float(gap.std(ddof=1)) / math.sqrt(len(gap)) if len(gap) > 1 else 0.0
        ahead = float(above[place] - above[int(order[1])])
        errors = ahead / spread if spread > 0 else None
    helps = len(trained.live) == 1 or calibration.p <= CHANCE
    chosen = trained.live[place] if helps or was is None else was
    return {
        "cluster": chosen,
        "confidence": float(each[:, trained.live.index(chosen)].mean()),
        "margin_in_errors": errors,
        "right": calibration.right,
        "tried": len(calibration.cluster),
        "p": calibration.p,
        "by": "confidence" if helps else ("run" if was is not None else "guess"),
    }
