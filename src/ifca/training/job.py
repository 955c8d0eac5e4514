"""Everything a training needs, in one frozen record: who, what, how, and on which machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, Protocol, get_args

import torch
from torch import nn

from ifca.core.attacks import Attack
from ifca.core.errors import InvalidInput
from ifca.core.initial import Draw, bernoulli
from ifca.core.privacy_settings import Spent
from ifca.core.recipe import Recipe
from ifca.core.types import Params, Task, model_count
from ifca.data import Clients, Federation
from ifca.engines.aside import WithAside
from ifca.engines.base import Engine, TurnEngine
from ifca.engines.distributed import DistributedEngine
from ifca.engines.gram.fast import FastEngine, applies
from ifca.engines.loop import LoopEngine
from ifca.engines.losing import Losing
from ifca.engines.lying import Lying
from ifca.engines.memory_budget import default_budget
from ifca.engines.precision import Precision, check_precision, storage
from ifca.engines.ranks import Ranks
from ifca.engines.vectorised import VectorisedEngine
from ifca.methods import Method, method_of
from ifca.methods.aggregation import rule_of
from ifca.methods.fedbn import check_batch_norm
from ifca.methods.local_models import LOCAL
from ifca.methods.registry import shared_parameters
from ifca.models.batch_norm import entries_of
from ifca.models.channels_last import channels_last
from ifca.models.networks import has_convolutions, logistic
from ifca.models.task import Factory, Loss, Metric, made, make_draw, make_task
from ifca.training.poisoned import poisoned

CPU = torch.device("cpu")
EngineName = Literal["loop", "vectorised", "flower"]


class Clusterer(Protocol):
    """Anything with scikit-learn's fit_predict."""

    def fit_predict(self, X: Any) -> Any:
        """Points [m, d] -> cluster numbers [m]."""
        ...


@dataclass(frozen=True)
class Job:
    """A federation, a recipe, a model, an engine."""

    federation: Federation
    recipe: Recipe
    model: Factory
    loss: Loss | None = None  # per sample; None: cross-entropy, or squared error in regression
    metrics: Mapping[str, Metric] = field(default_factory=dict)  # reported of the test clients, by name
    engine: EngineName = "vectorised"
    device: torch.device = CPU
    precision: Precision = "float32"
    compiled: bool = False  # torch.compile for mini-batch steps on CUDA
    budget: int | None = None  # bytes that chunks of clients may take; None: 2 GiB, on a GPU half of it
    fast_path: bool = True  # let the vectorised engine use its exact fast path where it applies
    remote: Callable[[Job], Engine] | None = None  # engine flower: makes it; the clients are elsewhere
    warm_start: Params | None = None
    clusterer: Clusterer | Callable[[int, int], Clusterer] | None = None  # or k, seed -> clusterer
    attack: Attack | None = None  # of some of the clients
    halvings: int = 0  # how often the recipe's step was halved because it diverged
    secret: int | None = None  # what a private job draws noise and participants from; None: the seed
    spent: Spent | None = None  # by the private run whose models it begins with
    other_data: int = 0  # what the data of a continuation are known by, for noise of its own
    ranks: Ranks | None = None  # the processes that train it together; None: this one alone
    mine: Clients | None = None  # with ranks: the training clients of this one

    def __post_init__(self) -> None:
        """Refuse a k that the federation cannot fill."""
        if self.engine not in get_args(EngineName):
            raise InvalidInput(
                f"engine must be one of {', '.join(get_args(EngineName))}, got {self.engine!r}"
            )
        check_precision(self.precision, self.device)
        m = len(self.federation.train)
        rule_of(self.recipe)  # refuses one that is not known
        if self.recipe.private and not self.method.private:
            raise InvalidInput(
                f"{self.recipe.algorithm}: needs more of clients than sums that noise can cover; with "
                'dp_epsilon or dp_noise use algorithm = "ifca-plain" or "global", and set baselines = [] '
                'or ["global"]'
            )
        if self.recipe.private and self.attack is not None:
            raise InvalidInput(
                "an attack and privacy (dp_epsilon, dp_noise) are not rehearsed together: attackers would "
                "not clip their changes, and epsilon holds for clients that do"
            )
        if self.method.clustered and not self.method.at_most_k and self.recipe.k > m:
            raise InvalidInput(f"k is {self.recipe.k}, but the federation has only {m} clients")

    @property
    def dtype(self) -> torch.dtype:
        """The type of the models' parameters."""
        return storage(self.precision)

    def __getstate__(self) -> dict[str, Any]:
        """Only the fields: what is made from them is made again."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def models(self) -> int:
        """How many models this job trains, at most; clients may be fewer than the models of a warm start."""
        places = self.method.models(self.recipe, len(self.federation.train))
        if self.warm_start and self.method.at_most_k:
            return max(places, min(self.recipe.k, model_count(self.warm_start)))
        return places

    @property
    def method(self) -> Method:
        """What distinguishes it from other jobs on the same data."""
        return method_of(self.recipe.algorithm)

    @cached_property
    def template(self) -> nn.Module:
        """The model as a module, to be looked at; its parameters are not used."""
        return made(self.model).to(self.dtype)

    @cached_property
    def task(self) -> Task:
        """The model as a function, with its loss."""
        return self._task(self.template)

    @cached_property
    def faster_task(self) -> Task:
        """The same function, where a CPU is faster by another order of its layers' numbers."""
        module = channels_last(
            self.template, (self.mine or self.federation.train).one(0, CPU, self.dtype).x[:2]
        )
        return self.task if module is None else self._task(module)

    def _task(self, module: nn.Module) -> Task:
        scaling = self.federation.target_scaling
        task = make_task(
            module,
            self.recipe,
            regression=self.federation.classes is None,
            device=self.device,
            loss=self.loss,
            low=torch.bfloat16 if self.precision == "bfloat16" else None,
            class_weights=self.class_weights,
            target_scale=None if scaling is None else scaling.scale,
        )
        self.method.suits(self.recipe, task)
        check_batch_norm(self.method, self.recipe, list(entries_of(self.template)))
        return self.method.task(self.recipe, task)

    @cached_property
    def class_weights(self) -> tuple[float, ...] | None:
        """What a sample of each class counts in gradients; None: all the same."""
        return self.federation.class_weights(self.recipe.class_weights)

    @cached_property
    def names(self) -> list[str]:
        """Names of the parameters (and statistics) that a client trains, in the order of the model."""
        return list(self.method.widened(self.recipe, entries_of(self.template)))

    @cached_property
    def shared(self) -> frozenset[str]:
        """Names of the parameters that all clusters share."""
        return shared_parameters(self.recipe, self.names)

    @property
    def draw(self) -> Draw:
        """One random initial model."""
        draw = make_draw(self.model, self.dtype)
        plain = bernoulli(draw) if self.recipe.initial == "bernoulli" else draw
        return lambda rng: self.method.widened(self.recipe, plain(rng))

    def placed(self) -> Job:
        """The job with its data on its GPU, where that leaves room to work."""
        train = self.mine or self.federation.train
        parts = [train, *([self.federation.test] if self.federation.test else [])]
        size = sum(part.nbytes for part in parts if part.x.device.type != self.device.type)
        if self.device.type != "cuda" or not size or size > default_budget(self.device):
            return self
        if self.mine is not None:
            return replace(self, mine=self.mine.to(self.device))
        return replace(self, federation=self.federation.to(self.device))

    def make_engine(self) -> Engine:
        """The engine, holding the training clients."""
        if self.engine == "flower":
            if self.remote is None:
                raise InvalidInput("engine flower needs a federation: use 'ifca federate'")
            if self.recipe.lost_replies:
                raise InvalidInput("lost_replies is of simulations: a real federation loses its own")
            return self.remote(self)
        trains = self.federation if self.mine is None else replace(self.federation, train=self.mine)
        engine = WithAside(
            self.engine_of,
            self.task,
            poisoned(trains, self.attack),
            self.recipe.seed,
            self.device,
            plain=self.engine == "loop",
            always=self.recipe.early_stopping,
        )
        made: Engine = engine
        if self.ranks is not None:
            made = DistributedEngine(self.ranks, engine, self.federation.train, trains.train)
        elif self.attacked is not None and self.attacked.kind.lies:
            made = Lying(engine, self.attacked)
        return Losing(made, self.recipe, self.federation.train) if self.recipe.lost_replies else made

    @property
    def attacked(self) -> Attack | None:
        """The attack on replies and data; where nothing is sent, on the attackers' own data alone."""
        return self.attack.on_data if self.attack is not None and self.method.alone else self.attack

    def engine_of(self, clients: Clients) -> TurnEngine:
        """What maps turns over some clients."""
        parts = self.task, self.recipe, clients
        more: Any = {"budget": self.budget or default_budget(self.device), "attack": self.attacked}
        if self.engine == "loop":
            return LoopEngine(*parts, **more)
        if self.fast_path and applies(self.task, self.recipe):
            return FastEngine(*parts, **more)
        if self.device.type == "cpu" and self.convolves:
            task = self.faster_task if self.fast_path else self.task
            return LoopEngine(task, self.recipe, clients, **more)  # never slower than vmap
        return VectorisedEngine(*parts, **more, compiled=self.compiled, by_hand=self.fast_path)

    @cached_property
    def convolves(self) -> bool:
        """Whether the model has convolutions."""
        return has_convolutions(self.template)

    def local_solutions(self) -> Job:
        """Line 1 of Algorithm 1: each client alone, with a convex model where there is one.

        Distances between neural networks say little (their hidden units can be permuted), so as in the
        authors' code classification clusters logistic regressions on the raw features; regression clusters
        the model itself.
        """
        recipe = replace(self.recipe, algorithm=LOCAL.name, rounds=self.recipe.erm_rounds, shared=())
        recipe = replace(recipe, option="model", resample=False, evaluate_every=0, stable_after=None)
        recipe = replace(recipe, aggregation="mean", on_divergence="stop", proximal=0.0)
        recipe = replace(recipe, step_size=recipe.erm_step_size or recipe.step_size, augment=False)
        alone = replace(self, recipe=recipe, warm_start=None, attack=self.attack and self.attack.on_data)
        classes = self.federation.classes
        if classes is None or self.loss is not None:
            return alone
        inputs = int(torch.Size(self.federation.input_shape).numel())
        recipe = replace(recipe, l2=0.0 if recipe.l2_layers else recipe.l2, l2_layers=())
        return replace(alone, recipe=recipe, model=lambda: logistic(inputs, classes))
