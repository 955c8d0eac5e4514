"""Are the models worse than a guess that looks at no feature? Then the run says so, in a sentence."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ifca.data import Federation
from ifca.training.fit import Fitted


class PoorFitWarning(UserWarning):
    """The models are worse than a guess that looks at no feature."""


def poor_fit(fitted: Fitted, quality: dict[str, Any] | None = None) -> list[str]:
    """A sentence where that is so of the training data, else of the test data, else none.

    A guess is the mean of the targets, or the most frequent class. quality: of the test data, where known.
    Losses of the user's own have no such guess, and class weights give up accuracy on purpose.
    """
    job = fitted.job
    if job.loss is not None or job.class_weights is not None:
        return []
    said = _regression(fitted) if job.federation.classes is None else _classification(fitted)
    if said is None and quality is not None:
        said = _tested(quality["overall"], fitted)
    return [] if said is None else [said]


def warn_of_poor_fit(fitted: Fitted) -> None:
    """The same as a warning of Python's, in the line that called fit."""
    for sentence in poor_fit(fitted):
        warnings.warn(sentence, PoorFitWarning, 3)


def _regression(fitted: Fitted) -> str | None:
    variance, loss = _variance(fitted.job.federation), _mean_loss(fitted)
    if variance is None or not loss > variance:
        return None
    above = f"the training loss, {loss:.4g}, is above the variance of the targets, {variance:.4g}"
    return f"{above}: {_worse(fitted)}"


def _tested(overall: dict[str, Any], fitted: Fitted) -> str | None:
    if fitted.job.federation.classes is None:
        r2 = overall["r2"]
        if r2 is None or r2 >= 0:
            return None
        return f"the test loss is above the variance of the test targets (R2 {r2:.3g}): {_worse(fitted)}"
    test = fitted.job.federation.test
    share = None if test is None else _largest_share(torch.bincount(test.y.long()).tolist())
    return _below("test", overall["accuracy"], share)


def _worse(fitted: Fitted) -> str:
    scaled = fitted.job.federation.target_scaling is not None
    advice = "try a smaller step_size" + ("" if scaled else " or standardise_target = true")
    return f"the mean of the targets would predict better; {advice}"


def _variance(federation: Federation) -> float | None:
    """Of the training targets, in the units of the loss; None: they are elsewhere."""
    scaling, y = federation.target_scaling, federation.train.y
    if scaling is not None:  # several targets are reported as they are scaled, each at variance 1
        return float(scaling.scale.square()) if scaling.scale.numel() == 1 else float(scaling.scale.numel())
    return float(y.double().reshape(len(y), -1).var(0, correction=0).sum()) if len(y) else None


def _mean_loss(fitted: Fitted) -> float:
    """Over all training samples of clients that answered."""
    sizes = torch.from_numpy(fitted.job.federation.train.sizes).double()
    heard = torch.isfinite(fitted.own_loss)
    return float((fitted.own_loss * sizes)[heard].sum() / sizes[heard].sum())


def _classification(fitted: Fitted) -> str | None:
    federation, labels = fitted.job.federation, fitted.labels
    if federation.class_counts is None and not len(federation.train.y):
        return None
    table = fitted.train.correct
    column = labels.clamp(min=0) if table.shape[1] > 1 else torch.zeros_like(labels)
    right, sizes = table.gather(1, column[:, None])[:, 0].double(), torch.from_numpy(federation.train.sizes)
    heard = torch.isfinite(right)
    share = _largest_share(list(federation.count_classes()))
    return _below("training", float(right[heard].sum() / sizes[heard].sum()), share)


def _largest_share(counts: list[int]) -> float:
    return max(counts) / sum(counts)


def _below(part: str, accuracy: float | None, share: float | None) -> str | None:
    if accuracy is None or share is None or not accuracy < share:
        return None
    return (
        f"the {part} accuracy, {accuracy:.2%}, is below the share of the largest class, {share:.2%}: to name "
        "that class always would be right more often; try more rounds or another step_size"
    )
