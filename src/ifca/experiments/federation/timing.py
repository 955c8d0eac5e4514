"""The Flower row of 'ifca bench': the same job on Flower's simulation, its clients in Ray actors."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

import torch
from flwr.app import Context
from flwr.serverapp import Grid

from ifca.data import Federation
from ifca.engines import Job
from ifca.engines.flower import Desk, FlowerEngine, Mail, Roster, make_client_app
from ifca.engines.flower.roster import introduce
from ifca.experiments import bench
from ifca.experiments.federation.apps import part_of
from ifca.experiments.federation.simulate import on_ray

MOST_CLIENTS = 1000  # of larger jobs so many are measured, and the time is scaled up


def flower_seconds(name: str, scale: float, rounds: int) -> float:
    """Seconds of a round of a bench job: the best of some after a first one, engine and server together."""
    job = _job(name, scale)
    clients = min(MOST_CLIENTS, len(job.federation.train))
    best: list[float] = []

    def work(grid: Grid) -> None:
        mail = Mail(grid)
        while len(mail.nodes()) < clients:
            mail.wait()
        desk = Desk(mail, Roster(()))
        members = introduce(mail, mail.nodes(), desk.faults, 0, mail.timeout)
        desk.roster = desk.roster.joined(members, mail.nodes(), desk.faults, 0)
        remote = replace(
            job, federation=desk.roster.federation(), engine="flower", remote=partial(_engine, desk)
        )
        best.append(bench.round_seconds(remote, rounds))

    app = make_client_app(partial(_site, name, scale), partial(_client_job, name, scale))
    on_ray(work, app, clients)
    return best[0] * len(job.federation.train) / clients


def _engine(desk: Desk, job: Job) -> FlowerEngine:
    return FlowerEngine(desk, job)


@lru_cache(maxsize=1)
def _job(name: str, scale: float) -> Job:
    """The job, made once in each process: its data are a function of the name."""
    return bench.make_job(name, scale, torch.device("cpu"))


def _site(name: str, scale: float, context: Context) -> Federation:
    return part_of(_job(name, scale).federation, int(context.node_config["partition-id"]))


def _client_job(name: str, scale: float, _context: Context, mine: Federation) -> Job:
    job = _job(name, scale)
    return replace(job, federation=mine, recipe=replace(job.recipe, k=1))
