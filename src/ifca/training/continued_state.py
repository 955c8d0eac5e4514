"""The beginning of a training that goes on with models which are there, on data that may have changed."""

from __future__ import annotations

from torch import Tensor

from ifca.core.types import ClusterState
from ifca.engines.precision import products
from ifca.methods.continued_start import continued_start
from ifca.training.halving import begin
from ifca.training.job import Job


def continued_state(job: Job, losses: Tensor, misfit: Tensor) -> ClusterState:
    """The state before round 0 of a job with a warm start of c models: what fit is to resume from.

    losses: [m, c] of the clients under these models; misfit: [m] whom none of them fits. A method without a
    referee cannot tell whether they need a model of their own: its clients choose among those there are.
    """
    if not job.method.referee:
        with products(job.precision):
            return begin(job, 0)[1]
    with products(job.precision):
        return begin(job, 0, lambda problem, _restart: continued_start(problem, losses, misfit))[1]
