"""A run under torchrun: the leading rank works as ever, the others follow it from training to training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ifca.core.errors import Diverged
from ifca.engines.ranks import Ranks, current
from ifca.runs.config import Config
from ifca.runs.make import make_federation, make_job
from ifca.runs.own_code import Code
from ifca.training import Job, fit
from ifca.training.dealt_clients import Begin, dealt, heard


@contextmanager
def leading(config: Config, code: Code) -> Iterator[None]:
    """The other ranks load the config's data, and take part in the trainings that begin here."""
    ranks = current()
    if ranks is None:
        yield
        return
    ranks.told((config, code))
    yield
    ranks.told(None)


def follow(ranks: Ranks) -> None:
    """Take part in what the leading rank trains, until it has no more. Nothing is written or said."""
    config, code = ranks.told()
    take_part(dealt(make_job(config, make_federation(config, code), code), ranks), ranks)


def take_part(job: Job, ranks: Ranks) -> None:
    """The trainings of one federation that the leading rank begins, until it says that there are no more."""
    while (begin := ranks.told()) is not None:
        assert isinstance(begin, Begin)
        now = replace(job, recipe=begin.recipe, warm_start=begin.warm_start)
        try:
            fit(now, restart=begin.restart, resume=begin.resume(job.device), on_round=heard)
        except Diverged:  # the leading rank knows, and says what follows
            continue
