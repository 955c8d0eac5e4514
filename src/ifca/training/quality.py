"""How good are predictions? The usual metrics, of test samples under the models that serve them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.types import select
from ifca.data import Clients
from ifca.training.fit import Fitted
from ifca.training.own_metrics import in_units
from ifca.training.unseen import halves

BINS = 10  # of equal width, of the calibration error
Array = NDArray[Any]
Quality = dict[str, float | int | None]


def quality_of(outputs: Array, y: Array, classes: int | None) -> Quality:
    """Metrics by name, null where one is not defined; outputs [n, classes or targets] and y in their units.

    Classification: accuracy, auroc (of several classes the mean over each against the others), f1 (mean over
    classes), log_loss, calibration_error. Regression: mae, rmse, r2 (means over several targets).
    """
    if not len(y) or not np.isfinite(outputs).all():
        return {"samples": len(y)} | dict.fromkeys(_REGRESSION if classes is None else _CLASSIFICATION)
    found = _regression(outputs, y) if classes is None else _classification(outputs, y.astype(np.int64))
    return {"samples": len(y), **{name: _finite(value) for name, value in found.items()}}


_CLASSIFICATION = ("accuracy", "auroc", "f1", "log_loss", "calibration_error")
_REGRESSION = ("mae", "rmse", "r2")


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _classification(outputs: Array, y: Array) -> dict[str, float | None]:
    from sklearn.metrics import f1_score, log_loss

    shares = torch.from_numpy(outputs).double().softmax(1).numpy()
    said = shares.argmax(1)
    return {
        "accuracy": float((said == y).mean()),
        "auroc": _auroc(shares, y),
        "f1": float(f1_score(y, said, average="macro")),
        "log_loss": float(log_loss(y, shares, labels=np.arange(shares.shape[1]))),
        "calibration_error": calibration_error(shares.max(1), said == y),
    }


def _auroc(shares: Array, y: Array) -> float | None:
    """Of two classes that of the second; of several the mean over those that some samples have."""
    from sklearn.metrics import roc_auc_score

    present = np.unique(y)
    if len(present) < 2:
        return None
    ones = [1] if shares.shape[1] == 2 else present
    return float(np.mean([roc_auc_score(y == c, shares[:, c]) for c in ones]))


def calibration_error(sure: Array, right: Array) -> float:
    """Expected calibration error: how far the share of right answers is from how sure they were, by bins."""
    place = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    gap = np.bincount(place, right.astype(np.float64) - sure, minlength=BINS)
    return float(np.abs(gap).sum() / len(sure))


def _regression(outputs: Array, y: Array) -> dict[str, float | None]:
    from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

    said, y = outputs.reshape(len(y), -1).astype(np.float64), y.reshape(len(y), -1).astype(np.float64)
    return {
        "mae": float(mean_absolute_error(y, said)),
        "rmse": math.sqrt(mean_squared_error(y, said)),
        "r2": float(r2_score(y, said)) if len(y) > 1 else None,
    }


def measured_quality(fitted: Fitted) -> dict[str, Any] | None:
    """Over all test samples, and of each cluster (with shared models only); None: there are none to judge.

    A client is served by the model that it chose on its training data; one that was never in training by the
    model that half of its samples chose, judged on the other half.
    """
    job = fitted.job
    parts = [] if job.engine == "flower" else list(_served(fitted))
    outputs, y, rule = (torch.cat([part[i] for part in parts]) if parts else None for i in range(3))
    if outputs is None or y is None or rule is None:
        return None

    def of(rows: Tensor) -> Quality:
        return quality_of(outputs[rows].numpy(), y[rows].numpy(), job.federation.classes)

    clusters = None
    if not job.method.personal:
        clusters = [{"cluster": j, **of(rule == j)} for j in range(len(fitted.places))]
    return {"overall": of(rule >= 0), "clusters": clusters}


def _served(fitted: Fitted) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of each client that is served: outputs [n, ...] and y in their units, and the model's number [n]."""
    tests, job = fitted.job.federation.test, fitted.job
    if tests is None or fitted.test is None:
        return []
    found = _said(fitted, tests, fitted.test.train_rule)
    if fitted.unseen is not None:
        scoring = halves(tests.subset(fitted.unseen.place.tolist()), job.recipe.seed)[1]
        found += _said(fitted, scoring, fitted.unseen.test.train_rule)
    return found


def _said(fitted: Fitted, clients: Clients, rule: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    job, found = fitted.job, []
    for i, j in enumerate(rule.tolist()):
        if j < 0:
            continue
        data = clients.one(i, job.device, job.dtype)
        with torch.no_grad():
            output, y = in_units(job, job.task.output(select(fitted.state.theta, j), data.x), data.y)
        n = len(y)
        found.append((output.reshape(n, -1).cpu(), y.cpu(), torch.full((n,), j)))
    return found
