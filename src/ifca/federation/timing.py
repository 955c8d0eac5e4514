"""Seconds of a round over a Flower grid, as of 'ifca federate simulate': the Flower row of 'ifca bench'."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid

from ifca.data import Federation
from ifca.engines.flower import Exchange, FlowerEngine, Roster, Session
from ifca.federation.apps import partition_of
from ifca.federation.client_manager import ClientManager
from ifca.federation.clientapp import make_client_app
from ifca.federation.process_grid import process_grid
from ifca.federation.simulation import POLL
from ifca.training import Job

MOST_CLIENTS = 1000  # of larger jobs so many are measured, and the time is scaled up
Make = Callable[..., Job]
"""Makes a job from hashable arguments; a function of a module, so that every process can call it."""


def flower_seconds(make: Make, arguments: tuple[Any, ...], measure: Callable[[Job], float]) -> float:
    """What is measured of a job whose clients are nodes of a grid."""
    job = _job(make, arguments)
    clients = min(MOST_CLIENTS, len(job.federation.train))
    found: list[float] = []

    def work(grid: Grid) -> None:
        session = Session(Exchange(grid, poll=POLL), Roster(()))
        ClientManager(session).wait_for(clients, session.exchange.timeout)
        federation = session.roster.federation()
        remote = replace(job, federation=federation, engine="flower", remote=partial(_engine, session))
        found.append(measure(remote))

    data, job_of = partial(_node_data, make, arguments), partial(_client_job, make, arguments)
    with process_grid(partial(make_client_app, data, job_of), clients) as grid:
        work(grid)
    return found[0] * len(job.federation.train) / clients


def _engine(session: Session, job: Job) -> FlowerEngine:
    return FlowerEngine(session, job.recipe, job.federation, job.shared)


@lru_cache(maxsize=1)
def _job(make: Make, arguments: tuple[Any, ...]) -> Job:
    """The job, made once in each process."""
    return make(*arguments)


def _node_data(make: Make, arguments: tuple[Any, ...], context: Context) -> Federation:
    return partition_of(_job(make, arguments).federation, int(context.node_config["partition-id"]))


def _client_job(make: Make, arguments: tuple[Any, ...], _context: Context, mine: Federation) -> Job:
    job = _job(make, arguments)
    return replace(job, federation=mine, recipe=replace(job.recipe, k=1))
