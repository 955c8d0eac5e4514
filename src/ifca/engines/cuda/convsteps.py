"""Identities and mini-batch steps of clients with a convolutional classifier, by convnet.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy, one_hot

from ifca.core import identity as core
from ifca.core.types import Data, Params, Task, model_count, select
from ifca.engines.cuda import convnet
from ifca.engines.cuda.chain import chain_of
from ifca.engines.cuda.convnet import ConvNet
from ifca.engines.cuda.graphed import Steps
from ifca.engines.precision import allows_tf32

AT_ONCE = 4096  # images that models are judged on at a time, all models together


def conv_steps(task: Task, x: Tensor, clients: int) -> ConvSteps | None:
    """For clients, at most so many at once, with inputs like x [c, n, ...]; None for other models, losses or
    machines.
    """
    plain = task.classifies and task.objective is None
    if not convnet.available() or not plain or not x.is_cuda or x.dtype != torch.float32:
        return None
    chain = chain_of(task.module)
    if chain is None or chain.before(x[0, :1]).dim() != 4:
        return None
    precision = "tf32" if allows_tf32() else "tf32x3"
    return ConvSteps(task, ConvNet(chain, x[0, :1], task.low, precision, clients))


class ConvSteps:
    """What engines/vectorised.py needs of a network, for a chunk of clients."""

    def __init__(self, task: Task, net: ConvNet) -> None:
        self.task, self.net = task, net

    def prepare(self, data: Data) -> Data:
        """The clients' samples as the network's first convolution reads them."""
        images = self.net.prepare(data.x.flatten(0, 1), len(data.x))
        return Data(images.view(*data.x.shape[:2], *images.shape[1:]), data.y, data.weight)

    def step(
        self, theta: Params, data: Data, gamma: Tensor, rows: Tensor, draws: Tensor | None = None
    ) -> Params:
        """One gradient step of every client on its rows [c, batch] (-1: none); theta is changed.

        data: prepared; as the client has it where the batch is augmented by draws [c, batch].
        """
        at, weight = _samples(data, rows)
        images, y, each = data.x.flatten(0, 1), data.y.flatten()[at], data.x.shape[1]
        if self.task.augment is not None and draws is not None:
            images = self.net.prepare(self.task.augment(images[at.flatten()], draws.flatten()), len(at))
            at, each = torch.arange(at.numel(), device=at.device).view_as(at), at.shape[1]
        logits, kept = self.net.forward(theta, images, at, each)
        right = one_hot(y, logits.shape[-1])
        share = gamma * weight / weight.sum(1, keepdim=True).clamp(min=1)  # so gradients are steps
        g = (logits.softmax(-1) - right) * share[..., None]
        pulls = {} if self.task.penalty is None else vmap(grad(self.task.penalty))(theta)
        self.net.descend(theta, at, each, g, kept)
        size = gamma * (weight.sum(1) > 0)
        for name, pull in pulls.items():
            theta[name].sub_(size.view(-1, *[1] * (pull.dim() - 1)) * pull)
        return theta

    def captured_step(self, now: Steps, *given: Any) -> Steps:
        """The same as engines/cuda/graphed.py takes it."""
        return now._replace(theta=self.step(now.theta, *given))

    def estimate(
        self, theta: Params, data: Data, rows: Tensor | None, own: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Identities [c] and losses [c, k] as core estimates them; rows: [c, n'] or None, all; own: [c]."""
        c, n = data.weight.shape
        if rows is None:
            rows = torch.arange(n, device=data.x.device).expand(c, n)
        at, weight = _samples(data, rows)
        share = weight / weight.sum(1, keepdim=True).clamp(min=1)
        if own is None:
            k, there = model_count(theta), weight > 0  # the rest is padding, of small clients most rows
            each = weight.new_zeros(k, *weight.shape)
            each[:, there] = self._losses(theta, data, at[there].expand(k, -1))
            losses = (each * share).sum(2).t()
            return core.identity(losses), losses
        loss = (self._losses(select(theta, own), data, at) * share).sum(1, keepdim=True)
        return own, torch.where(core.one_hot(own, model_count(theta)), loss, torch.nan)

    def _losses(self, theta: Params, data: Data, at: Tensor) -> Tensor:
        """Of each model of theta on its images: at [models, images] -> [models, images]."""
        parts, images, y = [], data.x.flatten(0, 1), data.y.flatten()
        for some in torch.split(at, max(1, AT_ONCE // len(at)), dim=1):
            logits, _ = self.net.forward(theta, images, some, data.x.shape[1])
            parts.append(
                cross_entropy(logits.flatten(0, 1), y[some].flatten(), reduction="none").view_as(some)
            )
        return torch.cat(parts, 1)


def _samples(data: Data, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of the samples among those of all clients, and their weights; row -1 weighs nothing."""
    c, n = data.weight.shape
    at = rows.clamp(min=0) + torch.arange(0, c * n, n, device=rows.device)[:, None]
    return at, data.weight.flatten()[at] * (rows >= 0)
