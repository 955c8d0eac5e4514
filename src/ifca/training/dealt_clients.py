"""A job on several ranks: each keeps its own clients, the leading one says which training begins and ends."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ifca.core.callbacks import Record
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState, Params
from ifca.data import Clients, Federation
from ifca.engines.distributed import SINGLE
from ifca.engines.ranks import Ranks, current
from ifca.methods.aggregation import rule_of
from ifca.training.job import Job


@dataclass(frozen=True)
class Begin:
    """A training that all ranks take part in."""

    recipe: Recipe
    warm_start: Params | None
    restart: int
    state: bytes | None  # to go on from; None: from the start

    def resume(self, device: torch.device) -> ClusterState | None:
        """The state to go on from, its models on this rank's device."""
        if self.state is None:
            return None
        found = torch.load(io.BytesIO(self.state), map_location={"cuda:0": str(device)}, weights_only=False)
        assert isinstance(found, ClusterState)
        return found


def dealt(job: Job, ranks: Ranks) -> Job:
    """The job with the clients of this rank; only the leading one keeps the others' data, for its reports."""
    refuse(job)
    clients = job.federation.train
    if len(clients) < ranks.size:
        raise InvalidInput(
            f"{ranks.size} ranks for {len(clients)} clients: start at most one for each client"
        )
    mine = clients.subset(ranks.shares(clients.sizes)[ranks.rank])
    federation = job.federation if ranks.leads else _without_data(job.federation)
    return replace(job, federation=federation, ranks=ranks, mine=mine)


def refuse(job: Job) -> None:
    """In one sentence what cannot be done over ranks."""
    recipe = job.recipe
    reasons = {
        f"aggregation = {recipe.aggregation!r}": not rule_of(recipe).additive,
        "check_updates": recipe.check_updates,
        "dp_epsilon and dp_noise": recipe.private,
        "an attack": job.attack is not None,
        'initial = "balanced"': recipe.initial == "balanced",
        'initial = "farthest"': recipe.initial == "farthest",
    }
    for what, holds in reasons.items():
        if holds:
            raise InvalidInput(f"{what} {SINGLE}")


def _without_data(federation: Federation) -> Federation:
    """The same clients by name and size; their data are on other ranks."""
    train, classes = federation.train, federation.classes
    named = Clients(train.x[:0], train.y[:0], train.offsets, train.ids, train.true_cluster)
    counts = None if classes is None else federation.count_classes()
    return replace(federation, train=named, class_counts=counts)


OnRound = Callable[[ClusterState, Record], object]


def begun(
    job: Job, restart: int, resume: ClusterState | None, on_round: OnRound | None
) -> tuple[Job, OnRound | None]:
    """A training as the leading rank begins it: the others are told, after every round too whether it ends.

    Alone, and on the other ranks, which are told, nothing changes.
    """
    ranks = current()
    if ranks is None or job.ranks is not None:
        return job, on_round
    job = dealt(job, ranks)
    ranks.told(Begin(job.recipe, _on_cpu(job.warm_start), restart, _packed(resume)))

    def ended(state: ClusterState, record: Record) -> bool:
        stop = on_round is not None and on_round(state, record) is True
        ranks.told(stop)
        return stop

    return job, ended


def heard(_state: ClusterState, _record: Record) -> Any:
    """Whether the leading rank ends the training."""
    ranks = current()
    assert ranks is not None
    return ranks.told()


def _packed(state: ClusterState | None) -> bytes | None:
    """A state as bytes, for the ranks of this run alone."""
    if state is None:
        return None
    content = io.BytesIO()
    torch.save(state, content)
    return content.getvalue()


def _on_cpu(theta: Params | None) -> Params | None:
    return None if theta is None else {name: value.cpu() for name, value in theta.items()}
