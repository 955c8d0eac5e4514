"""Where a rule of aggregation protects nobody: clusters of one or two. Then the run says so."""

from __future__ import annotations

import torch

from ifca.core.metrics import cluster_sizes
from ifca.methods.aggregation import rule_of
from ifca.training.fit import Fitted

FEWEST = 3  # participants of whom one attacker is a minority


def unprotected(fitted: Fitted) -> list[str]:
    """A sentence that names the clusters of whose participants in a round one attacker is half or more."""
    job, heard = fitted.job, fitted.labels[fitted.labels >= 0]
    rule = rule_of(job.recipe)
    if rule.additive or job.method.personal or not len(heard):
        return []
    sizes = cluster_sizes(heard, int(torch.max(heard)) + 1)
    small = [
        f"cluster {j} ({size} client{'s' * (size > 1)})"
        for j, size in enumerate(sizes)
        if 0 < size * job.recipe.participation < FEWEST
    ]
    if not small:
        return []
    why = "where at most two clients of a cluster take part in a round, one attacker is half of them or more"
    return [f"{why}, and {rule.name} cannot hold it off: {', '.join(small)}"]
