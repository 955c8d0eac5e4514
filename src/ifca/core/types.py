"""The few types that everything else speaks in.

Symbols of the paper: k clusters, m clients ("worker machines"), theta_j the model of cluster j.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Params = dict[str, Tensor]
"""Name -> tensor. One model: [...]. The k models of a state: stacked, [k, ...]."""


class Data(NamedTuple):
    """The samples of ONE client (with a leading client dimension: of a chunk of clients)."""

    x: Tensor  # [n, ...]
    y: Tensor  # [n] or [n, outputs]
    weight: Tensor  # [n]: 1 for a sample, 0 for padding


class Batch(NamedTuple):
    """The samples of ONE gradient step of one client."""

    x: Tensor  # [n, ...]
    y: Tensor  # [n] or [n, outputs]
    weight: Tensor  # [n]: 1 for a sample, 0 for padding
    draws: Tensor | None = None  # [n] random whole numbers, for what models draw; None: they draw nothing


@dataclass(frozen=True)
class FirstLayer:
    """A model that begins with a linear layer, z = W x + b: what exact fast paths need to know of it."""

    weight: str  # [h, d]
    bias: str | None  # [h]
    rest: Callable[[Params, Tensor], Tensor]
    """theta (of the layers after the first), z [n, h] -> outputs."""
    dense: tuple[tuple[str, str], ...] | None
    """(weight, bias) of the layers after the first where they are ReLU and Linear in turn; else None."""


@dataclass(frozen=True)
class Task:
    """What is learned: a model as a function of its parameters, and its loss f(theta; z)."""

    output: Callable[[Params, Tensor], Tensor]
    """theta, x [n, ...] -> outputs [n, ...]; samples do not influence each other."""
    loss: Callable[[Tensor, Tensor], Tensor]
    """outputs, y -> loss per sample [n]: what decides identities and is reported."""
    correct: Callable[[Tensor, Tensor], Tensor] | None = None
    """outputs, y -> 1 where the prediction is right [n]; None for regression."""
    penalty: Callable[[Params], Tensor] | None = None
    """Regulariser of the local objective; never part of the loss that decides an identity."""
    first: FirstLayer | None = None
    """Where the model begins with a linear layer."""
    classifies: bool = False
    """Whether the loss is the plain cross-entropy."""
    module: nn.Module | None = None
    """The module behind output, to be looked at."""
    low: torch.dtype | None = None
    """The precision of layers, where it is lower than that of parameters."""
    augment: Callable[[Tensor, Tensor], Tensor] | None = None
    """x [n, ...], draws [n] -> x to take a gradient on; never part of the loss that decides an identity."""
    objective: Callable[[Tensor, Tensor], Tensor] | None = None
    """The same for gradients alone, where training minimises another loss (class weights, scaled targets)."""
    training: Callable[[Params, Data | Batch], tuple[Tensor, Params]] | None = None
    """theta, batch -> outputs in gradient steps, and the entries of theta that the pass itself changes;
    where a model has layers that behave otherwise there (dropout, batch norm). None: as output, nothing
    changes."""
    drops: bool = False
    """Whether training needs the random numbers of a batch (dropout)."""

    @property
    def draws(self) -> bool:
        """Whether gradient steps need random numbers."""
        return self.augment is not None or self.drops

    @property
    def minimised(self) -> Callable[[Tensor, Tensor], Tensor]:
        """outputs, y -> what gradients are taken of, per sample [n]."""
        return self.loss if self.objective is None else self.objective


class ClientReply(NamedTuple):
    """What client i sends to the server (lines 9 and 11 of Algorithm 2)."""

    identity: Tensor  # [] the estimate j-hat
    losses: Tensor  # [k] F_i(theta_j); NaN for models the client was not sent
    update: Params  # option I: the gradient g_i; option II: the model theta~_i


@dataclass(frozen=True)
class ClusterSum:
    """Weighted sums of the clients' updates by cluster. Sums add up: the sum of parts is the whole."""

    total: Params  # [k, ...] sum over i of s_ij w_i update_i; float64 but where each cluster has one client
    weight: Tensor  # [k] float64: sum over i of s_ij w_i

    def __add__(self, other: ClusterSum) -> ClusterSum:
        """Fold two parts into one."""
        total = {name: value + other.total[name] for name, value in self.total.items()}
        return ClusterSum(total, self.weight + other.weight)


@dataclass(frozen=True)
class Progress:
    """What is known of a training beside its models: where it may go back to, and why it ended."""

    kept: ClusterState | None = None  # the state to go back to; early stopping ends with it
    kept_loss: float = math.inf  # its training loss; with early stopping its held-out loss
    first: Tensor | None = None  # [m] the clients' training losses in the first round, NaN: not heard
    halved: tuple[dict[str, Any], ...] = ()  # each time that the step was halved: a part of a round's record
    unrecorded: tuple[int, int] = (0, 0)  # bytes down and up of rounds given up, in no record yet
    stopped: str | None = None  # why, before the last round
    unfinished: bool = False  # stopped by a callback: the method has not finished yet


@dataclass(frozen=True)
class ClusterState:
    """Everything the server knows between two rounds; what a checkpoint holds."""

    theta: Params  # [k, ...]; zero at places without a model
    live: Tensor  # [k] which places hold a model
    round: int  # t, rounds done so far
    identity: Tensor  # [m] last known identity of each client, -1: never seen
    unchanged: int  # rounds since a participant's identity last changed
    checked: int  # the last round in which all participants were sent all k models, -1: none yet
    changed: int  # the last round in which an identity changed
    asked: Tensor  # [m] the last round in which each client judged all k models, -1: never
    bytes_down: Tensor  # [m] so far, by client
    bytes_up: Tensor  # [m]
    memory: Params = field(default_factory=dict)  # what the method itself remembers, by name
    moments: Params = field(default_factory=dict)  # what the server's optimiser remembers, by name
    checks: Params = field(default_factory=dict)  # rejections of each client (core/rejections.py)
    progress: Progress = Progress()

    @property
    def k(self) -> int:
        """Number of models."""
        return model_count(self.theta)


def model_count(theta: Params) -> int:
    """The k of stacked models."""
    return next(iter(theta.values())).shape[0]


def everywhere(theta: Params) -> Tensor:
    """All of the k places hold a model: [k]."""
    return torch.ones(model_count(theta), dtype=torch.bool)


def places_of(live: Tensor) -> Tensor:
    """The numbers of the places that hold a model."""
    return torch.nonzero(live)[:, 0]


def without(theta: Params, places: Tensor) -> Params:
    """The same models without those at the given places, where zeros are left."""
    return {name: value.index_fill(0, places.to(value.device), 0) for name, value in theta.items()}


def select(theta: Params, j: int | Tensor) -> Params:
    """Model j of the stacked models (j a list of indices: several models)."""
    return {name: value[j] for name, value in theta.items()}
