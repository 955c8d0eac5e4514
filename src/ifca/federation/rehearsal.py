"""A client that attacks, told so by its config: for rehearsals. What it sends is made by the same functions
as in a simulation; it knows nothing of the other clients.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifca.core.types import ClientReply, Params
from ifca.engines.attacked import Found, attacking
from ifca.engines.updates import Kept
from ifca.training.job import Job
from ifca.training.poisoned import poisoned


def as_it_trains(job: Job) -> Job:
    """The job with the data that the client trains on; of an honest one they are its own."""
    return replace(job, federation=poisoned(job.federation, job.attack))


def sent_turn(job: Job, theta: Params, t: int, reply: ClientReply, *, own: bool) -> ClientReply:
    """What the client sends in place of its reply. own: it was sent one model, and can claim no other."""
    known = torch.tensor([0 if own else -1])
    now = attacking(job.attack, job.recipe, theta, torch.zeros(1, dtype=torch.long), known, t)
    if now is None:
        return reply
    size = sum(value.numel() * value.element_size() for value in reply.update.values())
    kept = Kept(theta, 1, size, lambda _rows: iter(()))
    kept.add(torch.tensor([0]), {name: value[None] for name, value in reply.update.items()})
    found = now.on(Found(reply.identity[None].cpu(), reply.losses[None].cpu(), kept.updates(), None), None)
    update = {
        name: torch.cat(list(found.updates.blocks(frozenset([name]))), 1)[0].view(value.shape)
        for name, value in reply.update.items()
    }
    return ClientReply(found.identity[0], found.losses[0], update)


def opposite(job: Job, value: Tensor) -> Tensor:
    """What the client says it found; a liar says the opposite, as many times as its attack is strong."""
    factor = _lie(job)
    return value if factor is None else -factor * value


def enlarged(job: Job, value: Tensor) -> Tensor:
    """Its losses; a liar says that they are as many times as large."""
    factor = _lie(job)
    return value if factor is None else factor * value


def _lie(job: Job) -> float | None:
    return job.attack.strength if job.attack is not None and job.attack.kind.lies else None
