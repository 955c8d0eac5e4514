"""IFCA.continue_fit: go on with fitted models on new data of the same clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch
from sklearn.base import clone

from ifca.core.callbacks import Callback, Several
from ifca.core.errors import InvalidInput
from ifca.core.privacy_settings import Spent
from ifca.data import Federation
from ifca.methods import method_of
from ifca.runs.bands import known_clients, known_of_fitted
from ifca.runs.continued import as_before, before_and_after
from ifca.training import Fitted, Job, fit
from ifca.training.continued_state import continued_state
from ifca.training.preflight import check
from ifca.training.privacy import known_by
from ifca.training.starts import Starts
from ifca.use.continue_run import places_for
from ifca.use.drift_check import checked
from ifca.use.grouped import Groups, rows_of
from ifca.use.sklearn_front import SklearnFront

Front = TypeVar("Front", bound="ContinueFront")


class ContinueFront(SklearnFront):
    """The part of IFCA that goes on with its models where the clients' data have changed."""

    fitted_: Fitted
    drift_: dict[str, Any]

    def continue_fit(self: Front, X: Any, y: Any = None, groups: Groups = None) -> Front:
        """A new IFCA, trained on from these models with new data; this one stays as it is.

        X, y, groups: as of fit, prepared as the data of the first fit were. Its drift_ says who stayed,
        moved, joined or fits no model, the alarms, and (of a Federation with test data) what it brought.
        """
        trained = self._trained("continue_fit")
        if not method_of(trained.header["algorithm"]).chooses:
            name = trained.header["algorithm"]
            raise InvalidInput(f"continue_fit: is for algorithm ifca or ifca-plain, this is {name}")
        given = X
        if not isinstance(X, Federation):
            owner = self.client if groups is None else groups
            rows = rows_of("continue_fit", X, y, owner, trained)
            given = Federation.from_clients(rows.clients(), trained.classes)
        federation = as_before(trained.header, given, "continue_fit")
        fitted: Fitted | None = self.__dict__.get("fitted_")
        if fitted is not None:
            known = known_of_fitted(fitted)
        else:
            assert trained.directory is not None
            known = known_clients(trained.directory)
        found = checked(trained, known, federation.train)
        new = clone(self)
        job: Job = replace(new._job(federation), model=trained.factory, warm_start=trained.theta)
        misfit = torch.tensor([row["tried"] for row in found["clients"]])
        job = replace(job, recipe=replace(job.recipe, restarts=1, k=places_for(trained, int(misfit.sum()))))
        check(job)
        if job.recipe.private:
            job = replace(job, spent=Spent.of(self.privacy_), other_data=known_by(federation.train))
        losses = job.make_engine().score(trained.theta, federation.train).loss.cpu()
        state = continued_state(job, losses, misfit)
        told: Callback = Several(new.callbacks)
        after = fit(job, resume=state, on_round=new.on_round)
        new._starts = Starts(job, None, told)
        new._starts.done.append(after)
        new._keep(job, after, told)
        new.drift_ = {**found, "compared": before_and_after(after, trained.theta, found["clients"])}
        return new  # type: ignore[no-any-return]
