"""Which model a client without labels gets: by how confident the models are, and how far that can be trusted.

A model is more confident on samples of the kind that it was trained on, but some models are always more
confident than others. So each model's confidence (the mean over samples of its largest probability) is
measured from its own mean over clients whose cluster is known by their labels, cluster by cluster; where
nobody has labels, over those that had a model in the run. These clients are tried in the same way, each
without itself: how many would get their right model is how sure the answer is. Two groups with the same
features and opposite answers cannot be told apart like this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.data import Clients
from ifca.data.sources.partly_labelled import Unlabelled
from ifca.use.trained import Trained

CHANCE = 0.05  # p of as many right choices by chance, above which confidence is no help

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """What clients with a known cluster say of the models' confidences."""

    confidence: Floats  # [r, live] of each such client, under each model
    cluster: NDArray[np.int64]  # [r] its place among the live models
    of: str = "labels"  # how the cluster is known; else "run"

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


def unlabelled(
    trained: Trained,
    clients: Clients | None,
    fitting: dict[str, int],
    had: dict[str, int],
    without: Sequence[Unlabelled],
) -> list[dict[str, Any]]:
    """The models of clients without labels, by confidence.

    fitting: the model of each client with labels that one fits; had: of each client of the run.
    """
    if not without:
        return []
    if trained.classes is None:
        raise InvalidInput(
            f"client {without[0].id} has no labels: this is a regression, whose models give no confidences "
            "to choose by; give some of its rows a label, or leave it out"
        )
    each, found = {one.id: _each(trained, one) for one in without}, []
    if clients is None:
        tried = {name: (table, had[name]) for name, table in each.items() if name in had}
    else:
        kind = next(iter(trained.theta.values())).dtype
        tried = {
            name: (largest_probabilities(trained, clients.one(i, torch.device("cpu"), kind).x), fitting[name])
            for i, name in enumerate(clients.ids)
            if name in fitting
        }
    means = np.array([table.mean(0) for table, _ in tried.values()]).reshape(-1, len(trained.live))
    clusters = np.array([trained.live.index(cluster) for _, cluster in tried.values()], np.int64)
    known = Calibration(means, clusters, "run" if clients is None else "labels")
    for name, table in each.items():
        was = had.get(name)
        row = {"client": name, "samples": len(table), "was": was}
        found.append(row | by_confidence(trained, table, known, was))
    return found


def _each(trained: Trained, one: Unlabelled) -> Floats:
    """[n, live] of each of a client's samples under each model."""
    found = largest_probabilities(trained, _inputs(trained, one))
    if not np.isfinite(found).all():
        raise InvalidInput(
            f"client {one.id}: a model gives no finite number on this data; is it scaled as in training?"
        )
    return found


def _inputs(trained: Trained, one: Unlabelled) -> Tensor:
    shape = tuple(one.x.shape[1:])
    if not len(one.x):
        raise InvalidInput(f"client {one.id}: has no samples")
    if shape != trained.input_shape:
        raise InvalidInput(f"client {one.id}: samples have shape {shape}, training had {trained.input_shape}")
    return trained.inputs(torch.as_tensor(one.x))


def by_confidence(
    trained: Trained, each: Floats, calibration: Calibration, was: int | None
) -> dict[str, Any]:
    """The model of a client without labels, and how sure that is.

    each: [n, live] of its samples; was: its cluster in the run.
    """
    above = each.mean(0) - calibration.centre()
    order = np.argsort(-above, kind="stable")
    place, errors = int(order[0]), None
    if len(order) > 1:
        gap = each[:, place] - each[:, int(order[1])]
        spread = float(gap.std(ddof=1)) / math.sqrt(len(gap)) if len(gap) > 1 else 0.0
        ahead = float(above[place] - above[int(order[1])])
        errors = ahead / spread if spread > 0 else None
    only = len(trained.live) == 1
    helps = only or calibration.p <= CHANCE
    chosen = trained.live[place] if helps or was is None else was
    return {
        "cluster": chosen,
        "confidence": float(each[:, trained.live.index(chosen)].mean()),
        "most_confident": trained.live[place],
        "most": float(each[:, place].mean()),
        "margin_in_errors": errors,
        "right": calibration.right,
        "tried": len(calibration.cluster),
        "p": calibration.p,
        "tried_by": calibration.of,
        "by": "only" if only else "confidence" if helps else "run" if was is not None else "guess",
    }
