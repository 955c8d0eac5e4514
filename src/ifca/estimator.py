"""The front of training and use, in scikit-learn's manner: IFCA(k=4).fit(federation), open_run(folder)."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import nn

from ifca.core.callbacks import Record, Several
from ifca.core.errors import InvalidInput, StepHalvedWarning
from ifca.core.numbering import renumbered
from ifca.core.recipe import Option, Recipe
from ifca.core.types import Params
from ifca.data import Federation
from ifca.data.jsonl import read_jsonl
from ifca.engines.precision import Precision
from ifca.models import as_factory, linear, mlp
from ifca.models.task import Factory, Loss
from ifca.runs.auto_k import recipe_of
from ifca.runs.clients_table import read_clients
from ifca.runs.config import Config, ModelConfig
from ifca.runs.own_code import Code
from ifca.runs.own_data_config import GIVEN, GivenData
from ifca.runs.results import finished_summary, models_header, restart_report, write_results
from ifca.runs.run_folder import ROUNDS, check_unused, new_directory
from ifca.training import Fitted, Job, choose_device
from ifca.training.job import Clusterer, EngineName
from ifca.training.preflight import check
from ifca.training.rounds import OnRound
from ifca.training.starts import Starts
from ifca.use.card import write_card
from ifca.use.export import export_trained
from ifca.use.personal_front import PersonalFront
from ifca.use.trained import Trained, open_trained
from ifca.use.usual import usual_losses_of


class FewerClustersWarning(UserWarning):
    """Fewer clusters than k have clients."""


class IFCA(PersonalFront, BaseEstimator):  # type: ignore[misc]
    """Iterative Federated Clustering Algorithm; its baselines by `algorithm`.

    The arguments are those of Recipe, plus: k may be "auto" (as many clusters as the referee finds; so it is
    for "ifca" where k is left out, others take 2), rounds may be "auto" (until the held-out loss no longer
    falls, at most 500), model (a torch module, or a function that makes one;
    None: an MLP for classification, linear for regression), loss (per sample), precision, engine, device,
    memory_budget (MiB), warm_start (k models), clusterer (for one-shot: a scikit-learn clusterer, or a
    function of k and seed), on_round (a function of state and record, called after every round; where it
    returns True, that was the last one), callbacks (told of every start, round and end: Callback).

    After fit or load: models_ (name -> [models, ...], those that clients need), labels_ [m] (each training
    client's row of models_), history_ (a record per round), train_loss_, restarts_ (training loss of each
    restart), step_size_ (smaller than step_size where that diverged), stopped_ (how many rounds it took and
    why it stopped; None: it did as many as were asked for). After fit only: fitted_ (everything else),
    personalised_ (what clients chose, where asked for).

    Where fit ends with an exception (ctrl-C, one of a callback's), finish() makes a fit of the rounds done.
    """

    def __init__(
        self,
        k: int | Literal["auto"] | None = None,
        *,
        model: nn.Module | Factory | None = None,
        loss: Loss | None = None,
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
        initial: Literal["random", "bernoulli", "balanced", "oneshot"] = "random",
        erm_rounds: int = 10,
        erm_step_size: float | None = None,
        alpha: float = 0.01,
        personalise: bool = False,
        evaluate_every: int = 1,
        seed: int = 0,
        precision: Precision = "float32",
        engine: EngineName = "vectorised",
        device: str = "auto",
        memory_budget: int | None = None,
        warm_start: Params | None = None,
        clusterer: Clusterer | Callable[[int, int], Clusterer] | None = None,
        on_round: OnRound | None = None,
        callbacks: Sequence[object] = (),
    ) -> None:
        for name, value in list(locals().items()):  # only stores: checks are fit's
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def fit(self, federation: Federation) -> IFCA:
        """Train on a federation; restarts keep the start with the lowest training loss of the clients."""
        job = self._job(federation)
        check(job)
        self._starts = Starts(job, self.on_round, Several(self.callbacks))
        return self._keep(job, self._starts.train())

    def finish(self) -> IFCA:
        """Make a fit of the rounds that were done when fit ended with an exception."""
        if not hasattr(self, "_starts"):
            raise InvalidInput("finish: call fit first")
        return self._keep(self._starts.job, self._starts.finish())

    def _keep(self, job: Job, best: Fitted) -> IFCA:
        """The best start becomes what this has learned."""
        done = self._starts.done
        self.restarts_ = [one.train_loss if isinstance(one, Fitted) else float("inf") for one in done]
        histories = [one.history if isinstance(one, Fitted) else [] for one in done]
        self._reports = [restart_report(r, one, histories[r]) for r, one in enumerate(done)]
        self.fitted_: Fitted = best
        theta = {name: value.cpu() for name, value in best.state.theta.items()}
        own = None if self.model is None and self.loss is None else job.model
        facts = {**models_header(best), "personal": job.method.personal}
        usual = usual_losses_of(best)
        self._use = Trained(None, self._config(job), theta, facts, Code(), usual, own, self.loss)
        self.models_: Params = best.state.theta
        self.labels_: NDArray[Any] = best.labels.numpy()
        self.history_: list[Record] = renumbered(best.history, best.places, job.models)
        self.train_loss_, self.stopped_ = best.train_loss, best.stopped
        self.step_size_: float = best.job.recipe.step_size
        self.__dict__.pop("personalised_", None)
        if job.recipe.personalise:
            self.personalise()
        Several(self.callbacks).finished(best.outcome())
        live = len(set(self.labels_.tolist()))
        if job.method.clustered and not job.method.at_most_k and live < job.recipe.k:
            words = f"only {live} of {job.recipe.k} clusters have clients; try more restarts, or a smaller k"
            warnings.warn(words, FewerClustersWarning, 3)
        if self.step_size_ != job.recipe.step_size:
            words = f"training diverged: step_size {job.recipe.step_size:g} was halved to {self.step_size_:g}"
            warnings.warn(words, StepHalvedWarning, 3)
        return self

    def export(self, cluster: int, to: Path | str) -> Path:
        """Write one cluster's model for other programs (.pt, .safetensors, .onnx); returns its model card."""
        trained, to = self._trained("export"), Path(to)
        checked = export_trained(trained, cluster, to)
        if trained.directory is not None:
            return write_card(trained.directory, cluster, to, checked, trained)
        with TemporaryDirectory() as folder:
            self.save(Path(folder) / "run")
            return write_card(Path(folder) / "run", cluster, to, checked, trained)

    def save(self, folder: Path | str) -> Path:
        """Write a run folder as 'ifca run' does, which load, open_run and all commands read; without data."""
        if not hasattr(self, "_use"):
            raise InvalidInput("save: call fit first")
        trained, folder = self._use, Path(folder)
        check_unused(folder, advice="", option="folder")
        if not hasattr(self, "fitted_"):
            assert trained.directory is not None
            shutil.copytree(trained.directory, folder, dirs_exist_ok=True)
            return folder
        new_directory(trained.config, folder, Code())
        own = getattr(self, "personalised_", None)
        write_results(folder, self.fitted_, trained.config, self._reports, own)
        return folder

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        trust: bool = False,
        model: nn.Module | Factory | None = None,
        loss: Loss | None = None,
    ) -> IFCA:
        """A finished run as a fitted IFCA; model and loss: those it was given from Python.

        trust: run code that the folder names or holds, also where you did not make it on this machine.
        """
        folder = Path(folder)
        trained = open_trained(folder, trust, None if model is None else as_factory(model), loss)
        summary = finished_summary(folder)
        if summary is None:
            raise InvalidInput(f"{folder}: is not finished; 'ifca resume {folder}' goes on")
        names = {f.name for f in fields(Recipe)} | {"engine", "device", "precision", "memory_budget"}
        front = cls(**{name: getattr(trained.config, name) for name in names}, model=model, loss=loss)
        front._use = trained
        front.stopped_ = summary.get("stopped")
        front.step_size_ = summary.get("step_size", trained.config.step_size)
        front.models_, front.train_loss_ = trained.theta, summary["train_loss"]
        rows = [row for row in read_clients(folder) if row["train_samples"] != "0"]
        number = {-1: -1} | {j: place for place, j in enumerate(trained.live)}  # -1: of no cluster yet
        front.labels_ = np.array([number[int(row["cluster"])] for row in rows])
        places = summary.get("places", trained.live)
        front.history_ = renumbered(read_jsonl(folder / ROUNDS), places, summary["k"])
        losses = [one["train_loss"] for one in summary["restarts"]]
        front.restarts_ = [float("inf") if loss is None else loss for loss in losses]
        return front

    def _job(self, federation: Federation) -> Job:
        if not isinstance(federation, Federation):
            raise InvalidInput(f"fit takes a Federation, got {type(federation).__name__}")
        inputs = int(torch.Size(federation.input_shape).numel())
        maker = linear if federation.classes is None else mlp
        default: Factory = partial(maker, inputs, federation.outputs)
        return Job(
            federation,
            recipe_of(self.get_params(deep=False), len(federation.train)),
            default if self.model is None else as_factory(self.model),
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
        named = ModelConfig() if self.model is None and self.loss is None else ModelConfig(name=GIVEN)
        settings = {name: getattr(self, name) for name in ("engine", "device", "precision", "memory_budget")}
        recipe = {f.name: getattr(job.recipe, f.name) for f in fields(Recipe)} | {
            "k": self.k,
            "rounds": self.rounds,
        }
        return Config(**recipe, **settings, model=named, data=GivenData("python"))


def open_run(
    folder: Path | str,
    *,
    trust: bool = False,
    model: nn.Module | Factory | None = None,
    loss: Loss | None = None,
) -> IFCA:
    """A finished run's folder as a fitted IFCA: IFCA.load."""
    return IFCA.load(folder, trust=trust, model=model, loss=loss)
