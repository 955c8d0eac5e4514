"""All starts of a job, one after the other; where one ends with an exception, what was done is not lost."""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

from ifca.core.callbacks import Callback, Record, Training, wants_to_stop
from ifca.core.errors import Diverged, InvalidInput
from ifca.core.initial import best_restart
from ifca.core.types import ClusterState
from ifca.training.early_stopping import asked_to_stop
from ifca.training.fit import Fitted, fit
from ifca.training.job import Job
from ifca.training.rounds import OnRound


class _Under(NamedTuple):
    """The start under way, after its last round."""

    restart: int
    state: ClusterState
    history: list[Record]


class Starts:
    """The starts of a job; done: what each came to."""

    def __init__(self, job: Job, on_round: OnRound | None, told: Callback) -> None:
        self.job, self.done = job, list[Fitted | Diverged]()
        self._on_round, self._told = on_round, told
        self._under: _Under | None = None

    def train(self) -> Fitted:
        """Every start; the best of them."""
        for restart in range(self.job.recipe.restarts):
            try:
                self.done.append(self._start(restart))
            except Diverged as diverged:  # noqa: PERF203
                self.done.append(diverged)
        return self.best()

    def finish(self) -> Fitted:
        """After an exception: the start under way ends with the rounds that it has; the best of all."""
        if self._under is not None:
            restart, state, history = self._under
            self.done.append(fit(self.job, restart=restart, resume=asked_to_stop(state), history=history))
            self._under = None
        if not self.done:
            raise InvalidInput("finish: no round was done")
        return self.best()

    def best(self) -> Fitted:
        """The start with the lowest training loss of the clients."""
        fitted = [start for start in self.done if isinstance(start, Fitted)]
        if not fitted:
            raise next(start for start in reversed(self.done) if isinstance(start, Diverged))
        return fitted[best_restart([start.train_loss for start in fitted])]

    def _start(self, restart: int) -> Fitted:
        recipe, history = self.job.recipe, list[Record]()
        title = recipe.algorithm + ("" if recipe.restarts == 1 else f" {restart + 1}/{recipe.restarts}")
        self._told.started(Training(title, recipe.rounds, settings=asdict(recipe)))

        def on_round(state: ClusterState, record: Record) -> bool:
            history.append(record)
            self._under = _Under(restart, state, history)
            stop = self._on_round is not None and wants_to_stop(self._on_round, state, record)
            return wants_to_stop(self._told.round_ended, record) or stop

        fitted = fit(self.job, restart=restart, on_round=on_round)
        self._under = None
        return fitted
