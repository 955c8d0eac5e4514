"""Testing: which model serves a client, by two rules with two names, and how well."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ifca.core.identity import identity
from ifca.core.replies import Scores
from ifca.core.types import ClusterState
from ifca.engines.base import Engine
from ifca.engines.live_models import score_live
from ifca.training.job import Job
from ifca.training.own_metrics import client_metrics, mean_metrics


@dataclass(frozen=True)
class Evaluation:
    """Scores of some clients, and the model that serves each.

    paper_rule: the model with the lowest loss on the tested data itself (it sees the test labels).
    train_rule: the model the client chose on its training data; -1: the client was never in training.
    """

    scores: Scores
    sizes: Tensor  # [m] samples of each client
    paper_rule: Tensor  # [m]
    train_rule: Tensor  # [m]
    classification: bool
    metrics: dict[str, Tensor] = field(default_factory=dict)  # name -> [m], by the paper's rule
    metrics_train_rule: dict[str, Tensor] = field(default_factory=dict)

    def mean_metrics(self, table: dict[str, Tensor]) -> dict[str, float | None]:
        """The user's own metrics over all clients."""
        return mean_metrics(table, self.sizes)

    def accuracy(self, rule: Tensor) -> float | None:
        """Share of right predictions over all samples of clients that the rule serves."""
        if not self.classification:
            return None
        served = rule >= 0
        correct = self.correct(rule)[served]
        return float(correct.sum() / self.sizes[served].sum()) if len(correct) else None

    def mean_loss(self, rule: Tensor) -> float | None:
        """Mean loss over all samples of clients that the rule serves."""
        served = rule >= 0
        loss = (self.loss(rule) * self.sizes)[served]
        mean = float(loss.sum() / self.sizes[served].sum()) if len(loss) else math.nan
        return mean if math.isfinite(mean) else None

    def served_by(self, j: int) -> Tensor:
        """The paper's rule, of the clients alone that it sends to model j."""
        return torch.where(self.paper_rule == j, j, -1)

    def correct(self, rule: Tensor) -> Tensor:
        """Right predictions of each client."""
        return self._chosen(self.scores.correct, rule)

    def loss(self, rule: Tensor) -> Tensor:
        """Mean loss of each client."""
        return self._chosen(self.scores.loss, rule)

    def _chosen(self, table: Tensor, rule: Tensor) -> Tensor:
        column = rule.clamp(min=0) if table.shape[1] > 1 else torch.zeros_like(rule)
        return table.gather(1, column[:, None])[:, 0].double()


def evaluate(engine: Engine, job: Job, state: ClusterState, labels: Tensor) -> Evaluation | None:
    """Test the models on the test clients; labels: [m] identities of the training clients."""
    federation, theta = job.federation, state.theta
    if federation.test is None:
        return None
    owner = torch.from_numpy(federation.test_owner)
    trained = torch.where(owner >= 0, labels[owner.clamp(min=0)], -1)
    sizes = torch.from_numpy(federation.test.sizes).double()
    known = federation.classes is not None
    if job.method.personal:  # a client has its own model and no other
        scores = engine.score(theta, federation.test, trained.clamp(min=0))
        paper = trained
    else:
        scores = score_live(engine, theta, state.live, federation.test)
        paper = identity(scores.loss)
    if scores.answered is not None:  # nothing is known of clients that did not answer
        paper, trained = (torch.where(scores.answered, rule, -1) for rule in (paper, trained))
    if job.attack is not None:  # how attackers are served does not count
        attackers = torch.isin(owner, torch.tensor(job.attack.rows))
        paper, trained = (torch.where(attackers, -1, rule) for rule in (paper, trained))
    own = [client_metrics(job, theta, federation.test, rule) for rule in (paper, trained)]
    return Evaluation(scores, sizes, paper, trained, known, *own)
