"""A scikit-learn flavoured front: IFCA(k=4, ...).fit(federation)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from ifca.core.callbacks import Callback, Record, Several, Training
from ifca.core.errors import Diverged, IFCAError, InvalidInput
from ifca.core.identity import identity
from ifca.core.initial import best_restart
from ifca.core.numbering import renumbered
from ifca.core.recipe import Option, Recipe
from ifca.core.types import ClusterState, Params, select
from ifca.data import Client, Federation
from ifca.data.assemble import as_array
from ifca.data.clients import features
from ifca.engines.precision import Precision
from ifca.models import as_factory, linear, mlp
from ifca.models.task import Factory, Loss
from ifca.training import Fitted, Job, choose_device, fit
from ifca.training.job import Clusterer, EngineName
from ifca.training.preflight import check
from ifca.training.rounds import OnRound


class FewerClustersWarning(UserWarning):
    """Fewer clusters than k have clients."""


class IFCA(BaseEstimator):  # type: ignore[misc]
    """Iterative Federated Clustering Algorithm; its baselines by `algorithm`.

    The arguments are those of Recipe, plus: model (a torch module, or a function that makes one; None: an
    MLP for classification, linear for regression), loss (per sample), precision, engine, device,
    memory_budget (MiB), warm_start (k models), clusterer (for one-shot: a scikit-learn clusterer, or a
    function of k and seed), on_round (a function of state and record, called after every round), callbacks
    (told of every start, round and end: ifca.core.callbacks.Callback).

    After fit: models_ (name -> [k, ...]), labels_ [m], history_ (a record per round), train_loss_,
    restarts_ (training loss of each restart), fitted_ (everything else).
    """

    def __init__(
        self,
        k: int = 2,
        *,
        model: nn.Module | Factory | None = None,
        loss: Loss | None = None,
        algorithm: str = "ifca",
        rounds: int = 100,
        option: Option = "model",
        step_size: float = 0.1,
        step_decay: float = 1.0,
        local_steps: int = 10,
        local_epochs: int | None = None,
        batch_size: int | None = None,
        participation: float = 1.0,
        aggregation: str = "mean",
        weighted: bool = False,
        shared: tuple[str, ...] = (),
        l2: float = 0.0,
        l2_layers: tuple[str, ...] = (),
        augment: bool = False,
        stable_after: int | None = None,
        recheck_every: int = 10,
        resample: bool = False,
        restarts: int = 1,
        initial: Literal["random", "bernoulli", "balanced"] = "random",
        erm_rounds: int = 10,
        erm_step_size: float | None = None,
        evaluate_every: int = 1,
        seed: int = 0,
        precision: Precision = "float32",
        engine: EngineName = "vectorised",
        device: str = "auto",
        memory_budget: int | None = None,
        warm_start: Params | None = None,
        clusterer: Clusterer | Callable[[int, int], Clusterer] | None = None,
        on_round: OnRound | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        for name, value in list(locals().items()):  # only stores: checks are fit's
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def fit(self, federation: Federation) -> IFCA:
        """Train on a federation; restarts keep the start with the lowest training loss of the clients."""
        job = self._job(federation)
        check(job)
        starts: list[Fitted] = []
        self.restarts_: list[float] = []
        failure: IFCAError | None = None
        told = Several(self.callbacks)
        for restart in range(job.recipe.restarts):
            try:
                starts.append(self._start(job, restart, told))
                self.restarts_.append(starts[-1].train_loss)
            except Diverged as diverged:  # noqa: PERF203
                failure = diverged
                self.restarts_.append(float("inf"))
        if not starts:
            assert failure is not None
            raise failure
        best = starts[best_restart([start.train_loss for start in starts])]
        self.fitted_: Fitted = best
        self.models_: Params = best.state.theta
        self.labels_: NDArray[Any] = best.labels.numpy()
        self.history_: list[Record] = renumbered(best.history, best.places, job.models)
        self.train_loss_ = best.train_loss
        told.finished(best.outcome())
        live = len(set(self.labels_.tolist()))
        if job.method.clustered and not job.method.at_most_k and live < job.recipe.k:
            advice = "try more restarts, or a smaller k"
            warnings.warn(f"only {live} of {self.k} clusters have clients; {advice}", FewerClustersWarning, 2)
        return self

    def _start(self, job: Job, restart: int, told: Callback) -> Fitted:
        recipe = job.recipe
        title = recipe.algorithm + ("" if recipe.restarts == 1 else f" {restart + 1}/{recipe.restarts}")
        told.started(Training(title, recipe.rounds, settings=asdict(recipe)))

        def on_round(state: ClusterState, record: Record) -> None:
            if self.on_round is not None:
                self.on_round(state, record)
            told.round_ended(record)

        return fit(job, restart=restart, on_round=on_round)

    def losses(self, x: ArrayLike, y: ArrayLike) -> NDArray[Any]:
        """Mean loss of each of the k models on a client's data: [k]."""
        fitted = self._fitted("losses")
        if fitted.job.method.personal:
            raise InvalidInput("local models belong to one client each; a new client has none")
        federation = Federation.from_clients([Client(x, y)], fitted.job.federation.classes)
        trained = fitted.job.federation
        federation.check_fits("new client", trained.input_shape, trained.classes, trained.outputs)
        scores = fitted.job.make_engine().score(fitted.state.theta, federation.train)
        return scores.loss[0].numpy()

    def assign(self, x: ArrayLike, y: ArrayLike) -> int:
        """The cluster of a client, seen or never seen: the model with the lowest loss on its data."""
        return int(identity(torch.from_numpy(self.losses(x, y))))

    def predict(self, x: ArrayLike, cluster: int) -> NDArray[Any]:
        """Predictions of one cluster's model: class numbers, or values in regression."""
        fitted = self._fitted("predict")
        models = len(fitted.places)
        if not 0 <= cluster < models:
            raise InvalidInput(f"cluster must be from 0 to {models - 1}, got {cluster}")
        model = select(fitted.state.theta, cluster)
        like = next(iter(model.values()))
        with torch.no_grad():
            given = np.ascontiguousarray(as_array("x", "predict", x))
            inputs = features(torch.from_numpy(given).to(like.device), like.dtype)
            if inputs.shape[1:] != fitted.job.federation.input_shape:
                expected = fitted.job.federation.input_shape
                raise InvalidInput(
                    f"x: samples have shape {tuple(inputs.shape[1:])}, training had {expected}"
                )
            output: Tensor = fitted.job.task.output(model, inputs)
        if fitted.job.federation.classes is not None:
            return output.argmax(-1).cpu().numpy()
        targets = fitted.job.federation.train.y.shape[1:]
        return output.reshape(len(output), *targets).cpu().numpy()

    def _job(self, federation: Federation) -> Job:
        if not isinstance(federation, Federation):
            raise InvalidInput(f"fit takes a Federation, got {type(federation).__name__}")
        inputs = int(torch.Size(federation.input_shape).numel())
        maker = linear if federation.classes is None else mlp
        default: Factory = partial(maker, inputs, federation.outputs)
        recipe = Recipe(**{f.name: getattr(self, f.name) for f in fields(Recipe)})
        return Job(
            federation,
            recipe,
            default if self.model is None else as_factory(self.model),
            loss=self.loss,
            engine=self.engine,
            device=choose_device(self.device),
            precision=self.precision,
            budget=None if self.memory_budget is None else self.memory_budget * 2**20,
            warm_start=self.warm_start,
            clusterer=self.clusterer,
        )

    def _fitted(self, verb: str) -> Fitted:
        if not hasattr(self, "fitted_"):
            raise InvalidInput(f"{verb}: call fit first")
        return self.fitted_
