"""Every choice that Algorithm 1 and Algorithm 2 leave open, in one frozen record."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from ifca.core.errors import InvalidInput
from ifca.core.field_types import check_types
from ifca.core.method_settings import MethodSettings
from ifca.core.privacy_settings import PrivacySettings

Option = Literal["model", "gradient"]
ClientOptimizer = Literal["sgd", "momentum", "adam", "adamw"]
ServerOptimizer = Literal["none", "momentum", "adam", "yogi"]


@dataclass(frozen=True)
class Recipe(MethodSettings, PrivacySettings):
    """How to train: the inputs of the paper's algorithms and their practical variants."""

    algorithm: str = "ifca"
    """The method: ifca (Algorithm 2 with a founding and a referee); ifca-plain (Algorithm 2 as it is in the
    paper); global (one model for all); local (a model per client); oneshot (Algorithm 1); clove (the server
    clusters the clients' losses); clove-auto, cfl, fedgroup, stocfl, sr-fca; giant (Newton steps inside
    clusters); with a model per client per-fedavg, per-fedavg-hf, ditto, fedper, fedrep, fedbn, apfl, mapper,
    mocha, fedem, fedrc; or a Method of your own, package.module:NAME."""
    k: int = 2
    """Number of clusters (of ifca, clove-auto, cfl, stocfl and sr-fca the most; global has 1 model, local one
    per client)."""
    rounds: int = 100
    """How often clients train and the server averages what they send (T in the paper)."""
    early_stopping: bool = False
    """Stop when the clients' held-out loss no longer falls, and keep the models with the lowest; rounds is
    then the most. Every client sets one in five of its training samples aside for it, for the whole run."""
    option: Option = "model"
    """model: option II, averages of locally trained models. gradient: option I, averages of gradients."""
    step_size: float = 0.1
    """How far a model moves at each gradient step, the learning rate (gamma in the paper). Smaller is slower
    and safer; where the loss grows, try a third of it."""
    step_decay: float = 1.0
    """What the step size is multiplied by after every round (in round t it is step_size * step_decay^t); 1
    keeps it."""
    on_divergence: Literal["halve", "stop"] = "stop"
    """halve: when training diverges, go back to the models with the lowest loss so far and halve the step, at
    most 10 times. stop: end with an error."""
    local_steps: int = 10
    """Gradient steps that a client takes in a round, on all of its data or on batches of batch_size (tau of
    LocalUpdate; option model)."""
    local_epochs: int | None = None
    """Passes over the client's data in mini-batches, instead of local_steps (option model)."""
    batch_size: int | None = None
    """Samples per stochastic gradient; none: the whole of the client's data."""
    optimizer: ClientOptimizer = "sgd"
    """How clients take their steps (option model): sgd, plain gradient steps; momentum; adam; adamw. As in
    torch.optim; what it remembers is made anew in every round."""
    momentum: float = 0.9
    """What optimizer momentum keeps of the steps before."""
    weight_decay: float = 0.0
    """As in torch.optim: adds weight_decay x theta to the gradients of clients' steps; with adamw it shrinks
    theta itself (option model)."""
    proximal: float = 0.0
    """FedProx: adds mu/2 ||theta - the model that was sent||^2 to the local objective (option model)."""
    participation: float = 1.0
    """The share of clients that take part in a round (|M_t| / m in the paper); 1: all of them. With
    dp_epsilon or dp_noise: each client takes part with this probability, by itself."""
    lost_replies: float = 0.0
    """The probability that a participant's reply never comes (clients drop out; simulations only): it is
    asked, and nothing of its round is used."""
    aggregation: str = "mean"
    """How the server puts the updates of a cluster together: mean, weighted-mean (clients weigh by their
    number of samples), or a rule that holds where some clients send anything: clip (the mean of changes cut
    to the median norm), median, trimmed-mean, geometric-median, krum, multi-krum, centred-clipping, each also
    after nearest-neighbour mixing (nnm+median); or an Aggregation of your own, package.module:NAME."""
    attackers: float = 0.2
    """The share of a cluster that is assumed to attack, less than 0.5: what trimmed-mean leaves out at each
    end, and f of krum, multi-krum and nnm."""
    weighted: bool = False
    """Weigh clients by their number of samples in every average (the paper does not)."""
    check_updates: bool = False
    """Hold every reply against those of the others before it is used, reject what no honest client sends, and
    leave out whoever is rejected three times in a row (docs/security.md). A real federation always does."""
    server_optimizer: ServerOptimizer = "none"
    """What the server does with the mean change of a cluster's model: none, takes it as it is; momentum
    (FedAvgM), adam (FedAdam) or yogi (FedYogi), each cluster by itself."""
    server_step_size: float | None = None
    """The server's step along that change; none: 1, with adam and yogi 0.01."""
    server_betas: tuple[float, float] = (0.9, 0.99)
    """What the server keeps of changes and (adam, yogi) of their squares from round to round."""
    server_tau: float = 1e-3
    """With adam and yogi, what is added to the root of the mean square: larger is less adaptive."""
    shared: tuple[str, ...] = ()
    """Layers shared by all clusters (weight sharing): averaged over all participants, sent once."""
    l2: float = 0.0
    """Keeps parameters small (weight decay): adds l2/2 ||theta||^2 to the local objective; never to the loss
    that decides an identity."""
    l2_layers: tuple[str, ...] = ()
    """Layers that l2 applies to; empty: all."""
    class_weights: Literal["balanced"] | tuple[float, ...] | None = None
    """What a sample's loss counts in gradients, by its class: numbers, or "balanced": n / (classes x the
    class's samples), counted over all training clients, so that rare classes count as much as frequent ones.
    Losses that are reported, or decide an identity, are never weighted."""
    augment: bool = False
    """Random crops and flips of the images in gradient steps (for models that crop, such as cifar-cnn)."""
    batch_norm: Literal["refuse", "average", "client"] = "refuse"
    """What becomes of batch-norm layers, whose running statistics an average of gradients does not describe.
    refuse: a model with them is refused. average: statistics are averaged as parameters are. client (fedbn,
    fedper, local): every client keeps its own batch-norm layers."""
    stable_after: int | None = None
    """Once no client has changed its cluster for so many rounds, send clients their own model only, which
    saves bytes (clove: for good; its authors take 3). None: never."""
    recheck_every: int = 10
    """With stable_after: send all k models again every so many rounds, so that clients may still change."""
    resample: bool = False
    """The theory's re-sampling: 2T disjoint parts of each client's data, fresh ones in every round."""
    restarts: int = 1
    """Number of initialisations; the one with the lowest training loss of the clients is kept."""
    initial: Literal["random", "bernoulli", "balanced", "oneshot", "farthest", "dealt"] = "random"
    """Draw of the k initial models: the model's own initialisation; Bernoulli(0.5) per coordinate; balanced
    (ifca-plain): the model's own, all k again until each is chosen by 35% of the first round's clients;
    oneshot (ifca-plain): the model's own; in the first round each is trained by a cluster of Algorithm 1;
    farthest (ifca-plain): models that the first round's clients train from one start, each that of the client
    whom those before serve worst; dealt (ifca-plain, clove, clove-auto): the model's own, to which the first
    round's clients are dealt at random."""
    erm_rounds: int = 10
    """Rounds of local training (each of local_steps or local_epochs) before one-shot clustering; of sr-fca
    also the rounds before each of two refinements."""
    erm_step_size: float | None = None
    """Step of that local training; none: step_size."""
    alpha: float = 0.01
    """Level of the referee (ifca): groups that follow one law stay apart with at most this probability."""
    personalise: bool = False
    """At the end every client chooses, by parts of its data that it holds out, between its cluster's model,
    that model tuned to it, and a model of its own."""
    evaluate_every: int = 1
    """Test the models after every so many rounds (and after the last); 0: after the last only."""
    seed: int = 0
    """Everything random is a function of this seed."""

    def __post_init__(self) -> None:
        """Refuse what cannot be run, naming the field."""
        for name in ("shared", "l2_layers", "class_weights", "server_betas", "cfl_thresholds"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        check_types(self)
        _check_sizes(self)
        _at_least(1, k=self.k, rounds=self.rounds, local_steps=self.local_steps, restarts=self.restarts)
        _at_least(1, local_epochs=self.local_epochs, batch_size=self.batch_size, erm_rounds=self.erm_rounds)
        _at_least(1, stable_after=self.stable_after, recheck_every=self.recheck_every)
        _at_least(0, evaluate_every=self.evaluate_every, seed=self.seed)
        if not (math.isfinite(self.step_size) and self.step_size > 0):
            raise InvalidInput(f"step_size must be a positive number, got {self.step_size}")
        if self.erm_step_size is not None and not (
            math.isfinite(self.erm_step_size) and self.erm_step_size > 0
        ):
            raise InvalidInput(f"erm_step_size must be a positive number, got {self.erm_step_size}")
        if not 0 < self.step_decay <= 1:
            raise InvalidInput(f"step_decay must be in (0, 1], got {self.step_decay}")
        if not 0 < self.participation <= 1:
            raise InvalidInput(f"participation must be in (0, 1], got {self.participation}")
        if not 0 <= self.lost_replies < 1:
            raise InvalidInput(f"lost_replies must be in [0, 1), got {self.lost_replies}")
        if not 0 <= self.attackers < 0.5:
            why = "as no rule holds against half of a cluster"
            raise InvalidInput(f"attackers must be in [0, 0.5), {why}, got {self.attackers}")
        if not 0 < self.alpha < 1:
            raise InvalidInput(f"alpha must be in (0, 1), got {self.alpha}")
        if not (math.isfinite(self.l2) and self.l2 >= 0):
            raise InvalidInput(f"l2 must be zero or positive, got {self.l2}")
        if isinstance(self.class_weights, tuple) and not all(
            math.isfinite(weight) and weight > 0 for weight in self.class_weights
        ):
            raise InvalidInput(f"class_weights must be positive numbers, got {list(self.class_weights)}")
        self.check_settings()
        self.check_privacy()
        _check_optimizer(self)
        _check_server(self)
        if self.local_epochs is not None and self.batch_size is None:
            raise InvalidInput("local_epochs needs batch_size (full-batch training counts local_steps)")
        if self.resample and self.early_stopping:
            raise InvalidInput(
                "resample cuts the data by the number of rounds, so give that as a number: neither "
                'rounds = "auto" nor early_stopping goes with it'
            )
        if self.resample and self.batch_size is not None:
            raise InvalidInput(
                "resample uses whole parts of the data, so batch_size must not be given with it"
            )

    def step(self, t: int) -> float:
        """The step size of round t."""
        return self.step_size * self.step_decay**t

    def stepping(self, step_size: float) -> Recipe:
        """The recipe with another step size; the step by which clients adapt a model follows it."""
        inner = self.inner_step_size
        inner = None if inner is None else inner * (step_size / self.step_size)
        return replace(self, step_size=step_size, inner_step_size=inner)

    @property
    def server_step(self) -> float:
        """The step size of the server."""
        adaptive = self.server_optimizer in ("adam", "yogi")
        return (0.01 if adaptive else 1.0) if self.server_step_size is None else self.server_step_size


def _check_optimizer(recipe: Recipe) -> None:
    if not 0 <= recipe.momentum < 1:
        raise InvalidInput(f"momentum must be in [0, 1), got {recipe.momentum}")
    for name in ("weight_decay", "proximal"):
        value = getattr(recipe, name)
        if not (math.isfinite(value) and value >= 0):
            raise InvalidInput(f"{name} must be zero or positive, got {value}")
    if recipe.option == "gradient" and (recipe.optimizer != "sgd" or recipe.weight_decay or recipe.proximal):
        raise InvalidInput(
            "optimizer, weight_decay and proximal are of clients' steps, and with option gradient clients "
            "take none: use option model (or l2, which goes with both)"
        )


def _check_server(recipe: Recipe) -> None:
    if not all(0 <= beta < 1 for beta in recipe.server_betas):
        raise InvalidInput(f"server_betas must be two numbers in [0, 1), got {list(recipe.server_betas)}")
    for name in ("server_step_size", "server_tau"):
        value = getattr(recipe, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InvalidInput(f"{name} must be a positive number, got {value}")


def _at_least(low: int, **values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < low:
            raise InvalidInput(f"{name} must be at least {low}, got {value}")


LARGEST, LONGEST = 1e38, 2**63 - 1  # what single precision and whole numbers of 64 bits can hold


def _check_sizes(recipe: Recipe) -> None:
    """Refuse numbers that no computer counts with."""
    for name, value in vars(recipe).items():
        if isinstance(value, int | float) and abs(value) > (LONGEST if isinstance(value, int) else LARGEST):
            most = f"{LONGEST:,}" if isinstance(value, int) else f"{LARGEST:g}"
            raise InvalidInput(f"{name} must be at most {most}, got {value}")
