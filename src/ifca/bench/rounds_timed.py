"""A training whose rounds are timed one by one, so that several can take turns on a noisy machine."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

from ifca.bench.work import synchronise
from ifca.core.types import ClusterState
from ifca.engines.live_models import train_live
from ifca.engines.precision import products
from ifca.methods import Round
from ifca.training import Job
from ifca.training.rounds import ask_of, taking_part
from ifca.training.start import problem_of


class TimedRounds:
    """Engine and server, without testing. first: seconds of the start and the first round."""

    def __init__(self, job: Job) -> None:
        before = time.perf_counter()
        self.job = job = job.placed()
        self.engine = job.make_engine()
        self.problem = problem_of(job, self.engine)
        with products(job.precision):
            self.state = job.method.start(self.problem, 0)
        self.seconds: list[float] = []
        self.round()
        self.first = time.perf_counter() - before
        self.seconds.clear()

    def round(self) -> float:
        """One more; its seconds."""
        synchronise(self.job.device)
        before = time.perf_counter()
        with products(self.job.precision):
            self.state = self._after(self.state)
        synchronise(self.job.device)
        self.seconds.append(time.perf_counter() - before)
        return self.seconds[-1]

    def keep_identities(self) -> None:
        """As if no client had changed its cluster in the last round."""
        self.state = replace(self.state, unchanged=1)

    @property
    def median(self) -> float:
        """Of the rounds after the first."""
        return median(self.seconds)

    def _after(self, state: ClusterState) -> ClusterState:
        job = self.job
        who, known = taking_part(job, state)
        replies = train_live(self.engine, state, who, known, job.method.needs(job.recipe, state))
        ask = ask_of(self.engine, job.recipe)
        return job.method.server(self.problem, state, Round(who, known, replies), ask)[0]
