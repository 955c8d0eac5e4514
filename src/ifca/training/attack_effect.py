"""What an attack did: how well the honest clients are served, and whether a backdoor opens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ifca.core.attacks import Attack
from ifca.core.attacks.on_data import TARGET, brightest, triggered
from ifca.data import Clients
from ifca.training.fit import Fitted


class Served(NamedTuple):
    """Right predictions (in regression: losses) of honest test clients, and samples, by true cluster.

    Key None: where true clusters are not known.
    """

    right: dict[int | None, float]
    samples: dict[int | None, float]

    def mean(self, but: int | None = None) -> float:
        """Over all samples, or those of all clusters but one."""
        keys = [c for c in self.samples if but is None or c != but]
        total = sum(self.samples[c] for c in keys)
        return sum(self.right[c] for c in keys) / total if total else float("nan")

    def of(self, cluster: int | None) -> float:
        """Of one cluster."""
        return self.right[cluster] / self.samples[cluster]


def honest_tests(fitted: Fitted, attack: Attack) -> Tensor:
    """Which test clients are nobody of the attackers: [m']."""
    owner = torch.from_numpy(fitted.job.federation.test_owner)
    return ~torch.isin(owner, torch.tensor(attack.rows))


def served(fitted: Fitted, attack: Attack) -> Served:
    """How honest clients are served by the paper's rule; the attack may be one that this run was without."""
    test, tests = fitted.test, fitted.job.federation.test
    assert test is not None
    assert tests is not None
    counted = honest_tests(fitted, attack) & (test.paper_rule >= 0)
    value = test.correct(test.paper_rule) if test.classification else test.loss(test.paper_rule) * test.sizes
    true: list[int | None] = (
        [None] * len(tests) if tests.true_cluster is None else tests.true_cluster.tolist()
    )
    right: dict[int | None, float] = {}
    samples: dict[int | None, float] = {}
    for i in torch.nonzero(counted)[:, 0].tolist():
        right[true[i]] = right.get(true[i], 0.0) + float(value[i])
        samples[true[i]] = samples.get(true[i], 0.0) + float(test.sizes[i])
    return Served(right, samples)


def victim(attack: Attack, before: Served, after: Served) -> int | None:
    """The attacked cluster; of attackers that are of all clusters the one that lost most."""
    if attack.cluster is not None:
        return attack.cluster
    both = [c for c in before.samples if c is not None and c in after.samples]
    return max(both, key=lambda c: abs(before.of(c) - after.of(c)), default=None)


def backdoor_success(fitted: Fitted, attack: Attack, only: int | None = None) -> float | None:
    """The share of honest clients' test samples of other classes that the trigger makes the target's.

    only: of one true cluster. None: there is no backdoor, or the data are elsewhere.
    """
    job, test = fitted.job, fitted.test
    if not attack.kind.triggered or test is None or job.engine == "flower":
        return None
    tests = job.federation.test
    assert tests is not None
    counted = honest_tests(fitted, attack) & (test.paper_rule >= 0)
    if only is not None and tests.true_cluster is not None:
        counted &= torch.from_numpy(tests.true_cluster == only)
    train = job.federation.train
    value = max(brightest(train.x[train.offsets[i] : train.offsets[i + 1]]) for i in attack.rows)
    who, marked = _marked(tests, counted, value)
    if marked is None:
        return None
    engine = job.engine_of(job.federation.train)
    scores = engine.score(fitted.state.theta, marked, test.paper_rule[who])
    return float(scores.correct.sum()) / float(marked.offsets[-1])


def _marked(tests: Clients, counted: Tensor, value: float) -> tuple[Tensor, Clients | None]:
    """Which test clients, and their samples of other classes with the trigger and the target's label."""
    rows = [
        start + np.flatnonzero(tests.y[start:end].cpu().numpy() != TARGET) if use else np.empty(0, np.int64)
        for start, end, use in zip(tests.offsets, tests.offsets[1:], counted.tolist(), strict=False)
    ]
    who = [i for i, some in enumerate(rows) if len(some)]
    if not who:
        return torch.tensor(who), None
    index = torch.from_numpy(np.concatenate([rows[i] for i in who])).to(tests.x.device)
    offsets = np.concatenate([[0], np.cumsum([len(rows[i]) for i in who])]).astype(np.int64)
    x = triggered(tests.x[index], value)
    y = torch.full_like(tests.y[index], TARGET)
    return torch.tensor(who), Clients(x, y, offsets, tuple(tests.ids[i] for i in who))
