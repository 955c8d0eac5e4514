"""Seconds of a round on Flower's simulation, its clients in Ray actors: the Flower row of 'ifca bench'."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid

from ifca.data import Federation
from ifca.engines.flower import Exchange, FlowerEngine, Roster, Session
from ifca.engines.flower.roster import query_members
from ifca.federation.apps import part_of
from ifca.federation.clientapp import make_client_app
from ifca.federation.simulation import on_ray
from ifca.training import Job

MOST_CLIENTS = 1000  # of larger jobs so many are measured, and the time is scaled up
Make = Callable[..., Job]
"""Makes a job from hashable arguments; a function of a module, so that every process can call it."""


def flower_seconds(make: Make, arguments: tuple[Any, ...], measure: Callable[[Job], float]) -> float:
    """What is measured of a job whose clients are nodes of Flower's simulation."""
    job = _job(make, arguments)
    clients = min(MOST_CLIENTS, len(job.federation.train))
    found: list[float] = []

    def work(grid: Grid) -> None:
        exchange = Exchange(grid)
        while len(exchange.nodes()) < clients:
            exchange.wait()
        session = Session(exchange, Roster(()))
        members, _ = query_members(exchange, exchange.nodes(), session.faults, 0, exchange.timeout)
        session.roster = session.roster.joined(members, exchange.nodes(), session.faults, 0)
        federation = session.roster.federation()
        remote = replace(job, federation=federation, engine="flower", remote=partial(_engine, session))
        found.append(measure(remote))

    app = make_client_app(partial(_site, make, arguments), partial(_client_job, make, arguments))
    on_ray(work, app, clients)
    return found[0] * len(job.federation.train) / clients


def _engine(session: Session, job: Job) -> FlowerEngine:
    return FlowerEngine(session, job.recipe, job.federation, job.shared)


@lru_cache(maxsize=1)
def _job(make: Make, arguments: tuple[Any, ...]) -> Job:
    """The job, made once in each process."""
    return make(*arguments)


def _site(make: Make, arguments: tuple[Any, ...], context: Context) -> Federation:
    return part_of(_job(make, arguments).federation, int(context.node_config["partition-id"]))


def _client_job(make: Make, arguments: tuple[Any, ...], _context: Context, mine: Federation) -> Job:
    job = _job(make, arguments)
    return replace(job, federation=mine, recipe=replace(job.recipe, k=1))
