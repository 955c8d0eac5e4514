"""Local models of convolutional networks: clients in parts, so that a few models are in memory at a time.

What a client learns alone does not depend on the others (its randomness follows from its id), so parts give
what the whole would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ifca.data import Federation
from ifca.engines.precision import products
from ifca.training import Fitted, Job, fit


def fitted_parts(job: Job, size: int) -> Iterator[tuple[list[int], Fitted]]:
    """The clients of each part, and their trained models."""
    train, test = job.federation.train, job.federation.test
    for begin in range(0, len(train), size):
        who = list(range(begin, min(begin + size, len(train))))
        mine = np.flatnonzero(np.isin(job.federation.test_owner, who)).tolist()
        tested = test.subset(mine) if test is not None and mine else None
        yield who, fit(replace(job, federation=Federation(train.subset(who), tested, job.federation.classes)))


def tested_on_all(job: Job, size: int) -> Tensor:
    """Right predictions of every client's own model on every test client: [m, test clients]."""
    test = job.federation.test
    assert test is not None
    test, rows = test.to(job.device), []
    for who, fitted in fitted_parts(job, size):
        engine, theta = fitted.job.make_engine(), fitted.state.theta
        with products(job.precision), torch.no_grad():
            for i in range(len(who)):
                one = {name: value[i : i + 1] for name, value in theta.items()}
                rows.append(engine.score(one, test).correct[:, 0].double())
    return torch.stack(rows)


def tested_on_own(job: Job, size: int) -> tuple[float, float]:
    """All clients' own models: accuracy on their own test data, and mean training loss."""
    right = total = loss = 0.0
    for who, fitted in fitted_parts(job, size):
        loss += fitted.train_loss * len(who)
        if fitted.test is not None:
            right += float(fitted.test.correct(fitted.test.train_rule).sum())
            total += float(fitted.test.sizes.sum())
    return right / total, loss / len(job.federation.train)
