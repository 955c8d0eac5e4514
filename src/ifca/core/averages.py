"""What the center machine does with the replies (lines 13 to 15 of Algorithm 2)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ifca.core.identity import one_hot
from ifca.core.types import ClusterSum, Params

FEW, MANY = 32, 64  # models, clients: up to and from which one product for all of them is the fastest


def zero_sum(theta: Params, dtype: torch.dtype = torch.float64) -> ClusterSum:
    """The sum of no replies, in double precision so that the order of folding hardly matters."""
    total = {name: torch.zeros_like(value, dtype=dtype) for name, value in theta.items()}
    first = next(iter(theta.values()))
    return ClusterSum(total, first.new_zeros(len(first), dtype=torch.float64))


def fold(replies: ClusterSum, identity: Tensor, update: Params, weight: Tensor) -> ClusterSum:
    """Add the updates of some clients: sum over i of s_ij w_i update_i. Adds in place; returns replies.

    identity, weight: [c]; update: [c, ...]. Of many clients, and on a GPU, it is one product with the matrix
    of all s_ij w_i: nothing goes to the host.
    """
    k, weight = len(replies.weight), weight.double()
    if k > FEW or (len(identity) < MANY and not identity.is_cuda):
        return _fold_each(replies, identity, update, weight)
    own = one_hot(identity, k).t() * weight  # s_ij w_i: [k, c]
    replies.weight.add_(own.sum(1))
    for name, value in update.items():
        replies.total[name].view(k, -1).addmm_(own, value.reshape(len(value), -1).double())
    return replies


def _fold_each(replies: ClusterSum, identity: Tensor, update: Params, weight: Tensor) -> ClusterSum:
    """The same model by model: of many models most of that matrix would be zeros."""
    for j in sorted(set(identity.tolist())):
        members = identity == j
        replies.weight[j] += weight[members].sum()
        for name, value in update.items():
            replies.total[name][j] += torch.tensordot(weight[members], value[members].double(), dims=1)
    return replies


def gradient_averaging(
    theta: Params,
    replies: ClusterSum,
    step: float,
    shared: frozenset[str],
    *,
    apart: bool = False,
    pace: float = 1.0,
) -> Params:
    """Option I: theta_j <- theta_j - gamma/m sum over i of s_ij g_i, m the number of participants.

    A shared coordinate takes the gradients of all participants. apart: each cluster is a federation of its
    own (line 3 of Algorithm 1, and a client alone), so m is the number of its own participants. pace: the
    share of the step that is taken (_paced in methods/ifca.py); shared coordinates take all of it.
    """
    m = replies.weight.sum().clamp(min=1e-300)  # of nobody: all models stay

    def descend(name: str, value: Tensor) -> Tensor:
        total = replies.total[name]
        count = m
        if name in shared:
            total = total.sum(0, keepdim=True).expand_as(total)
        elif apart:
            count = replies.weight.clamp(min=1e-300).reshape(-1, *[1] * (value.dim() - 1))
        size = step if name in shared else step * pace
        return (value.double() - size / count * total).to(value.dtype)

    return {name: descend(name, value) for name, value in theta.items()}


def model_averaging(theta: Params, replies: ClusterSum, shared: frozenset[str]) -> Params:
    """Option II: theta_j <- mean of its members' models; an empty cluster keeps its model.

    A shared coordinate becomes the mean over all participants.
    """
    weight = replies.weight
    there = weight > 0
    divisor = torch.where(there, weight, 1)

    def average(name: str, value: Tensor) -> Tensor:
        total = replies.total[name]
        if name in shared:
            mean = torch.where(weight.sum() > 0, total.sum(0) / weight.sum(), value[0])
            return mean.to(value.dtype).expand_as(value).clone()
        if total.dtype == value.dtype and bool((weight == 1).all()):
            return total  # every model has one member (ClusterSum)
        per_model = (-1, *[1] * (value.dim() - 1))
        mean = total / divisor.reshape(per_model)
        return torch.where(there.reshape(per_model), mean.to(value.dtype), value)

    return {name: average(name, value) for name, value in theta.items()}


def parameters_of(names: list[str], layers: tuple[str, ...]) -> frozenset[str]:
    """The parameters that belong to the named layers: layer "fc1" owns "fc1.weight" and "fc1.bias"."""
    return frozenset(n for n in names for layer in layers if n == layer or n.startswith(layer + "."))


def running_statistics(names: Iterable[str]) -> frozenset[str]:
    """Those entries of a model that no gradient moves: means and variances of batch-norm layers."""
    return frozenset(n for n in names if n.rpartition(".")[2] in ("running_mean", "running_var"))


def norm_layers(names: Iterable[str]) -> frozenset[str]:
    """All entries of batch-norm layers, parameters and running statistics."""
    names = list(names)
    layers = {n.rpartition(".")[0] for n in running_statistics(names)}
    return frozenset(n for n in names if n.rpartition(".")[0] in layers)
