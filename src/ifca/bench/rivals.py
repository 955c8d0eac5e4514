"""The methods of the bench, and one unit: a method trained on a regime, measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifca.bench.regimes import regime_of
from ifca.core.initial import best_restart
from ifca.core.metrics import adjusted_rand_index
from ifca.engines.gram.fast import applies
from ifca.runs.units.unit import Line, Unit
from ifca.training import Fitted, Job, fit
from ifca.training.candidates import Candidate
from ifca.training.local_training import local_scores
from ifca.training.personalise import Personalised, always, personalise


@dataclass(frozen=True)
class Rival:
    """A method as the bench runs it."""

    title: str
    recipe: dict[str, Any]
    """Fields of the recipe."""
    starts: int = 1
    """So many starts; the one with the lowest training loss is kept, all are paid for."""
    told: bool = False
    """It is told the true clusters: what could be reached, no method."""


RIVALS = {
    "ifca": Rival("IFCA (default)", {"algorithm": "ifca"}),
    "ifca-plain": Rival("plain IFCA", {"algorithm": "ifca-plain"}),
    "best-of-5": Rival("plain IFCA, best of 5 starts", {"algorithm": "ifca-plain"}, starts=5),
    "oneshot": Rival("one-shot", {"algorithm": "oneshot"}),
    "oneshot-plain": Rival("one-shot start, then plain", {"algorithm": "ifca-plain", "initial": "oneshot"}),
    "clove": Rival("CLoVE's rule", {"algorithm": "clove"}),
    "global": Rival("global", {"algorithm": "global"}),
    "local": Rival("local", {"algorithm": "local"}),
    "oracle": Rival(
        "oracle (true clusters)",
        {"algorithm": "oneshot", "erm_rounds": 1, "erm_step_size": 1e-4},
        told=True,
    ),
}
"""By name. The best of those that are neither told nor alone is what IFCA must not be behind."""


PERSONALISED = ("ifca", "global")
"""Of these the models are measured after personalisation, too."""
TUNED = Candidate("tuned", 40)
"""What is tried on everybody, to compare with."""


class Told:
    """A clusterer that is told the true clusters."""

    def __init__(self, clusters: np.ndarray) -> None:
        """clusters: [m]."""
        self.clusters = clusters

    def fit_predict(self, X: Any) -> np.ndarray:  # noqa: ARG002 (scikit-learn's signature)
        """The truth, whatever the points."""
        return self.clusters


def job_of(regime: str, method: str, seed: int, device: torch.device) -> Job:
    """What a unit trains."""
    rival, job = RIVALS[method], replace(regime_of(regime).job(seed), device=device)
    job = replace(job, recipe=replace(job.recipe, **rival.recipe))
    if not rival.told:
        return job
    true = job.federation.train.true_cluster
    assert true is not None
    found, clusters = np.unique(true, return_inverse=True)
    return replace(job, recipe=replace(job.recipe, k=len(found)), clusterer=Told(clusters))


def run(unit: Unit, device: torch.device) -> Line:
    """Train and measure one unit: setting is the regime, algorithm the method."""
    job, starts = job_of(unit.setting, unit.algorithm, unit.seed, device), RIVALS[unit.algorithm].starts
    gram = applies(job.task, job.recipe) and job.recipe.option == "model" and job.loss is None
    if job.method.personal and gram:
        return _alone(job)
    fits = [fit(job, restart=restart) for restart in range(starts)]
    best = fits[best_restart([fitted.train_loss for fitted in fits])]
    line = {**measured(best), "bytes": sum(map(_bytes, fits)), "turns": sum(map(_turns, fits))}
    return {**line, **personalised(best)} if unit.algorithm in PERSONALISED else line


def _alone(job: Job) -> Line:
    """Local models, trained and tested without being formed where that is possible."""
    tests, m = job.federation.test, len(job.federation.train)
    assert tests is not None
    place = {int(owner): at for at, owner in enumerate(job.federation.test_owner)}
    found = local_scores(job, tests, [[place[i]] for i in range(m)])
    sizes = torch.tensor([int(tests.sizes[place[i]]) for i in range(m)])
    turns = {"live": m, "bytes": 0, "turns": m * job.recipe.rounds}
    if job.federation.classes is not None:
        return {**scored(found.correct[:, 0] / sizes, found.loss[:, 0]), **turns}
    assert job.loss is None  # the squared error
    variance = tests.y.double().var(correction=0).cpu()
    return {**scored(1 - found.loss[:, 0].double() / variance, found.loss[:, 0]), **turns}


def measured(fitted: Fitted) -> Line:
    """Train rule: each client is served by the model that it has in the end, and tested on its test data."""
    test, true = fitted.test, fitted.job.federation.train.true_cluster
    assert test is not None
    line: Line = {"train_loss": fitted.train_loss, "live": len(set(fitted.labels.tolist()))}
    if true is not None and not fitted.job.method.personal:
        line["ari"] = adjusted_rand_index(true, fitted.labels.numpy())
    if test.classification:
        right = test.correct(test.train_rule) / test.sizes
    else:
        right = explained(fitted, test.metrics_train_rule["squared_error"])
    return {**line, **scored(right, test.loss(test.train_rule))}


def scored(right: Tensor, loss: Tensor) -> Line:
    """Means over clients, and each client's score [m] in thousandths."""
    return {
        "accuracy": float(right.double().mean()),
        "test_loss": float(loss.double().mean()),
        "by_client": (1000 * right.double()).round().clamp(min=-9999).int().tolist(),
    }


def explained(fitted: Fitted, squared_error: Tensor) -> Tensor:
    """Regression's score in place of accuracy: share of the targets' variance explained, by client [m]."""
    test = fitted.job.federation.test
    assert test is not None
    return 1 - squared_error.cpu() / test.y.double().var(correction=0).cpu()


def personalised(fitted: Fitted) -> Line:
    """Scores after every client has chosen, and after every client has tuned its model, needed or not."""
    found = personalise(fitted)
    tuned = always(found, TUNED)
    return {"personalised": _test_scores(fitted, found), "tuned": _test_scores(fitted, tuned)}


def _test_scores(fitted: Fitted, found: Personalised) -> Line:
    test = found.test
    assert test is not None
    if test.classification:
        return scored(test.correct(test.train_rule) / test.sizes, test.loss(test.train_rule))
    tests, like = fitted.job.federation.test, next(iter(fitted.state.theta.values()))
    assert tests is not None
    errors = []
    for i in range(len(tests)):
        data = tests.one(i, like.device, like.dtype)
        said = found.outputs(int(fitted.job.federation.test_owner[i]), data.x)
        errors.append((said.reshape(data.y.shape) - data.y).double().square().mean().cpu())
    return scored(explained(fitted, torch.stack(errors)), test.loss(test.train_rule))


def _bytes(fitted: Fitted) -> int:
    return int((fitted.state.bytes_down + fitted.state.bytes_up).sum())


def _turns(fitted: Fitted) -> int:
    """Clients' turns, those that were repeated in a round included."""
    history = fitted.history
    again = sum(event.get("asked_again", 0) for record in history for event in record.get("events", []))
    return int(sum(record["participants"] for record in history) + again)
