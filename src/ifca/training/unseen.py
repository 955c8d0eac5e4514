"""Clients that were never in training: a part of their data chooses a model, the rest scores it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ifca.core.identity import identity
from ifca.core.sampling import drawn_rows
from ifca.core.types import ClusterState
from ifca.data import Clients
from ifca.engines.base import Engine
from ifca.engines.live_models import score_live
from ifca.training.evaluate import Evaluation
from ifca.training.job import Job
from ifca.training.own_metrics import client_metrics


@dataclass(frozen=True)
class Unseen:
    """Scores of test clients that were never in training, on data that did not choose their model."""

    place: Tensor  # [u] their places among the test clients
    test: Evaluation  # of the parts that score; its train_rule is the model that the other part chose


def evaluate_unseen(engine: Engine, job: Job, state: ClusterState) -> Unseen | None:
    """Score the clients never seen; None: there are none, or no model is theirs to choose.

    Half of a client's samples, rounded down, choose the model with the lowest loss; the others score it.
    Which half follows from the seed and the client's id, so that it is the same for every method. A client
    with one sample cannot be scored so and is left out.
    """
    test, federation = job.federation.test, job.federation
    if test is None or job.method.personal:
        return None
    place = np.flatnonzero((federation.test_owner < 0) & (test.sizes > 1))
    if not len(place):
        return None
    choosing, scoring = halves(test.subset(place.tolist()), job.recipe.seed)
    chosen = identity(score_live(engine, state.theta, state.live, choosing).loss)
    scores = score_live(engine, state.theta, state.live, scoring)
    sizes = torch.from_numpy(scoring.sizes).double()
    paper, known = identity(scores.loss), federation.classes is not None
    own = [client_metrics(job, state.theta, scoring, rule) for rule in (paper, chosen)]
    return Unseen(torch.from_numpy(place), Evaluation(scores, sizes, paper, chosen, known, *own))


def halves(clients: Clients, seed: int) -> tuple[Clients, Clients]:
    """Each client's samples in two random parts, n // 2 and the others; each part in its old order."""
    first = drawn_rows(seed, "unseen-split", clients.keys, clients.sizes, clients.sizes // 2)
    return clients.only(first), clients.only(~first)
