"""The front of training and use, in scikit-learn's manner: IFCA(k=4).fit(federation), open_run(folder)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from sklearn.base import BaseEstimator
from torch import nn

from ifca.core.callbacks import Callback, Several
from ifca.core.errors import FewerClustersWarning, InvalidInput, StepHalvedWarning
from ifca.core.numbering import renumbered
from ifca.core.recipe import ClientOptimizer, Option, Recipe, ServerOptimizer
from ifca.core.types import Params
from ifca.data import Federation
from ifca.engines.precision import Precision
from ifca.models import BuiltIn
from ifca.models.task import Factory, Loss
from ifca.report.notebook import progress, shown_page
from ifca.runs.auto_k import recipe_of
from ifca.runs.config import Config, ModelConfig
from ifca.runs.make import given_model
from ifca.runs.own_code import Code
from ifca.runs.own_data_config import GIVEN, GivenData
from ifca.runs.results import models_header, restart_report
from ifca.runs.scaled import Scale
from ifca.runs.usual import usual_losses_of
from ifca.training import Fitted, Job, choose_device
from ifca.training.job import Clusterer, EngineName
from ifca.training.poor_fit import warn_of_poor_fit
from ifca.training.preflight import check
from ifca.training.rounds import OnRound
from ifca.training.starts import Starts
from ifca.use.grouped import Groups, training_data
from ifca.use.saved_front import SavedFront
from ifca.use.trained import Trained


class IFCA(SavedFront, BaseEstimator):  # type: ignore[misc]
    """Clustered federated learning (IFCA) in scikit-learn's manner; its baselines by `algorithm`.

    fit(X, y, groups=...) takes rows and whose they are; fit(federation) takes a Federation. Clients that
    follow the same law share a model; predict(X, groups=...) serves each client by the model of its cluster.

    After fit or load: clients_ (names of the training clients), labels_ [m] (each training client's row of
    models_), models_ (name -> [models, ...], those that clients need), classes_, history_ (a record per
    round), train_loss_, restarts_ (training loss of each restart), quality_ (metrics of test data), privacy_,
    step_size_ (smaller than step_size where that diverged), stopped_ (how many rounds it took and why it
    stopped; None: as many as asked for). After fit only: fitted_ (everything else), personalised_ (what
    clients chose, where asked for). Arguments not listed here are keys of the config.

    Args:
        k: the number of clusters. "auto": as many as the data support. None: "auto" for the algorithms
            ifca, clove-auto, cfl, stocfl and sr-fca, 2 for others.
        model: a torch module, a function that makes one, or a name as in configs ("mlp", "linear",
            "logistic", "cnn"). None: what suits the data.
        loss: a function of outputs and labels that gives a loss per sample. None: cross-entropy for classes,
            squared error for numbers.
        standardise, standardise_target: features, and the targets of a regression, at mean 0 and variance 1;
            all that is said is in the units of the targets. "auto": for tables and ifca's own models.
        algorithm: ifca, ifca-plain (the paper's Algorithm 2), global (one model for all), local (a model per
            client), another of docs/methods.md, or a method of your own.
        rounds: how often clients train and the server averages what they send. "auto": until the held-out
            loss no longer falls, at most 500.
        step_size: how far a model moves at each gradient step (the learning rate); smaller if the loss grows.
        local_steps: gradient steps of a client in a round.
        participation: the share of clients that takes part in a round.
        restarts: trainings from different initial models; that with the lowest training loss is kept.
        personalise: let every client choose in the end between its cluster's model and one of its own.
        seed: all that is random follows from it; the same seed gives the same models.
        client: the column of X that says whose a row is, where groups is not given: a DataFrame's column
            name, or the number of an array's column.
        verbose: show progress: a bar in notebooks and on terminals, plain lines elsewhere.
        warm_start: models to begin with: name -> [k, ...].
        clusterer: for oneshot, a scikit-learn clusterer or a function of k and seed that makes one.
        on_round: a function of state and record, called after every round; True: that was the last one.
        callbacks: told of every start, round and end (ifca.core.callbacks.Callback).
    Where fit ends with an exception (ctrl-C, one of a callback's), finish() makes a fit of the rounds done.

    """

    def __init__(
        self,
        k: int | Literal["auto"] | None = None,
        *,
        model: nn.Module | Factory | str | None = None,
        loss: Loss | None = None,
        standardise: Scale = "auto",
        standardise_target: Scale = "auto",
        algorithm: str = "ifca",
        rounds: int | Literal["auto"] = 100,
        early_stopping: bool = False,
        option: Option = "model",
        step_size: float = 0.1,
        step_decay: float = 1.0,
        on_divergence: Literal["halve", "stop"] = "halve",
        local_steps: int = 10,
        local_epochs: int | None = None,
        batch_size: int | None = None,
        optimizer: ClientOptimizer = "sgd",
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        proximal: float = 0.0,
        participation: float = 1.0,
        lost_replies: float = 0.0,
        aggregation: str = "mean",
        attackers: float = 0.2,
        weighted: bool = False,
        check_updates: bool = False,
        server_optimizer: ServerOptimizer = "none",
        server_step_size: float | None = None,
        server_betas: tuple[float, float] = (0.9, 0.99),
        server_tau: float = 1e-3,
        shared: tuple[str, ...] = (),
        l2: float = 0.0,
        l2_layers: tuple[str, ...] = (),
        class_weights: Literal["balanced"] | tuple[float, ...] | None = None,
        augment: bool = False,
        batch_norm: Literal["refuse", "average", "client"] = "refuse",
        stable_after: int | None = None,
        recheck_every: int = 10,
        resample: bool = False,
        restarts: int = 1,
        initial: Literal["random", "bernoulli", "balanced", "oneshot", "farthest", "dealt"] = "random",
        erm_rounds: int = 10,
        erm_step_size: float | None = None,
        sr_lambda: float | None = None,
        alpha: float = 0.01,
        ditto_lambda: float = 1.0,
        mocha_lambda: float = 1e-4,
        inner_step_size: float | None = None,
        cfl_thresholds: tuple[float, ...] | None = None,
        cfl_gamma: float = 0.1,
        cfl_after: int = 20,
        fedgroup_distance: Literal["edc", "madc"] = "edc",
        fedgroup_step: float = 0.0,
        stocfl_tau: float = 0.4,
        stocfl_pull: float = 0.05,
        dp_epsilon: float | None = None,
        dp_noise: float | None = None,
        dp_delta: float = 1e-5,
        dp_clip: float = 1.0,
        personalise: bool = False,
        evaluate_every: int = 1,
        seed: int = 0,
        precision: Precision = "float32",
        engine: EngineName = "vectorised",
        device: str = "auto",
        memory_budget: int | None = None,
        warm_start: Params | None = None,
        clusterer: Clusterer | Callable[[int, int], Clusterer] | None = None,
        client: str | int | None = None,
        verbose: bool = False,
        on_round: OnRound | None = None,
        callbacks: Sequence[object] = (),
    ) -> None:
        for name, value in list(locals().items()):  # only stores: checks are fit's
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def fit(self, X: Any, y: Any = None, groups: Groups = None) -> IFCA:
        """Train; restarts keep the start with the lowest training loss of the clients.

        X: rows [n, ...], as an array or a DataFrame, or a list with an array per client, or a Federation
        alone. y: classes (integers, or words) or targets (floats), or the name of X's column that has
        them. groups: whose each row is [n], or the name of X's column that says so. Columns of words, dates
        and missing cells are prepared as 'ifca run' prepares tables, and predict does the same.
        """
        job = self._job(training_data(X, y, groups, self.client))
        check(job)
        with progress(self.verbose) as shown:
            told = Several([*shown, *self.callbacks])
            self._starts = Starts(job, self.on_round, told)
            return self._keep(job, self._starts.train(), told)

    def finish(self) -> IFCA:
        """Make a fit of the rounds that were done when fit ended with an exception."""
        if not hasattr(self, "_starts"):
            raise InvalidInput("finish: call fit first")
        return self._keep(self._starts.job, self._starts.finish(), Several(self.callbacks))

    def _keep(self, job: Job, best: Fitted, told: Callback) -> IFCA:
        """The best start becomes what this has learned."""
        done = self._starts.done
        self.restarts_ = [one.train_loss if isinstance(one, Fitted) else float("inf") for one in done]
        histories = [one.history if isinstance(one, Fitted) else [] for one in done]
        self._reports = [restart_report(r, one, histories[r]) for r, one in enumerate(done)]
        self.fitted_: Fitted = best
        theta = {name: value.cpu() for name, value in best.state.theta.items()}
        own = None if isinstance(job.model, BuiltIn) else job.model
        known = theta, models_header(best), Code(), usual_losses_of(best), own, self.loss
        self._use = Trained(None, self._config(job), *known)
        self.clients_, self.models_ = tuple(job.federation.train.ids), best.state.theta
        self._say_what_was_seen()
        self.labels_ = best.labels.numpy()
        self.history_ = renumbered(best.history, best.places, job.models)
        self.train_loss_, self.stopped_ = best.train_loss, best.stopped
        self.step_size_ = best.job.recipe.step_size
        self.__dict__.pop("personalised_", None)
        if job.recipe.personalise:
            self.personalise()
        told.finished(best.outcome())
        warn_of_poor_fit(best)
        live = len(set(self.labels_.tolist()))
        if job.method.clustered and not job.method.at_most_k and live < job.recipe.k:
            said = f"only {live} of {job.recipe.k} clusters have clients; try more restarts, or a smaller k"
            warnings.warn(said, FewerClustersWarning, 3)
        if self.step_size_ != job.recipe.step_size:
            said = f"training diverged: step_size {job.recipe.step_size:g} was halved to {self.step_size_:g}"
            warnings.warn(said, StepHalvedWarning, 3)
        return self

    def _repr_html_(self) -> str:
        """For notebooks: the page of a fitted model; before that, the arguments."""
        if not hasattr(self, "_use"):
            return str(super()._repr_html_())
        with self._folder() as folder:
            return shown_page(folder)

    def _repr_mimebundle_(self, **_options: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _job(self, federation: Federation) -> Job:
        federation, model = given_model(self, federation)
        return Job(
            federation,
            recipe_of(self.get_params(deep=False), len(federation.train)),
            model,
            loss=self.loss,
            engine=self.engine,
            device=choose_device(self.device),
            precision=self.precision,
            budget=None if self.memory_budget is None else self.memory_budget * 2**20,
            warm_start=self.warm_start,
            clusterer=self.clusterer,
        )

    def _config(self, job: Job) -> Config:
        """The config of a run that this would have been; what was a Python object is called python."""
        ours = isinstance(job.model, BuiltIn) and self.loss is None
        named = ModelConfig(name=(self.model or "auto") if ours else GIVEN)
        settings = {name: getattr(self, name) for name in ("engine", "device", "precision", "memory_budget")}
        recipe = {f.name: getattr(job.recipe, f.name) for f in fields(Recipe)}
        recipe |= {"k": self.k, "rounds": self.rounds}
        return Config(**recipe, **settings, model=named, data=GivenData("python", self.client))


def open_run(
    folder: Path | str,
    *,
    trust: bool = False,
    model: nn.Module | Factory | None = None,
    loss: Loss | None = None,
) -> IFCA:
    """A finished run's folder as a fitted IFCA: IFCA.load."""
    return IFCA.load(folder, trust=trust, model=model, loss=loss)
