"""What ONE client tells of its data before training: the solution of a small convex problem, in closed form.

A ridge regression from the features to the answers (for classes: one number each, 1 for its own). It needs
no step size and knows neither the model nor its loss, so nothing about either can mislead it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ifca.core.random import bits
from ifca.core.types import Data, Params, Task

PENALTY = 0.01  # of the summed squares of the features: how much a solution is held back
FEATURES = 4096  # that are looked at, at most


def solve(data: Data, classes: int | None) -> Tensor:
    """W minimises sum over z of |w'x - y|^2 + penalty |w|^2, with a constant beside the features: [d + 1, c].

    The penalty grows with the samples, so that clients of different sizes are held back alike. Padding, of
    weight 0, changes nothing.
    """
    x, y = _features(data.x.double()), _answers(data.y, classes)
    here = data.weight.double()[:, None]
    x, y = x * here, y * here
    squares = x.square().sum()
    constant = (squares / (here.sum() * x.shape[1]).clamp(min=1)).sqrt()
    x = torch.cat([x, constant * here], 1)
    hold = PENALTY * x.square().sum().clamp(min=1e-12)
    n, d = x.shape
    if n <= d:
        return _unscaled(x.T @ _solution(x @ x.T, hold, y), constant)
    return _unscaled(_solution(x.T @ x, hold, x.T @ y), constant)


def _solution(squares: Tensor, hold: Tensor, y: Tensor) -> Tensor:
    """(squares + hold I)^-1 y by Cholesky's factors: the system is symmetric and positive."""
    system = squares + hold * torch.eye(len(squares), dtype=y.dtype, device=y.device)
    return torch.cholesky_solve(y, torch.linalg.cholesky(system))


def _unscaled(w: Tensor, constant: Tensor) -> Tensor:
    """The last row as an intercept."""
    return torch.cat([w[:-1], constant * w[-1:]])


def probe_task(classes: int | None) -> Task:
    """Such solutions as models, {"w": [d + 1, c]}, with their loss: the squared error."""

    def output(theta: Params, x: Tensor) -> Tensor:
        w = theta["w"]
        return _features(x.to(w.dtype)) @ w[:-1] + w[-1]

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return (output - _answers(y, classes).to(output.dtype)).square().sum(-1)

    return Task(output, loss)


def _features(x: Tensor) -> Tensor:
    """Samples as rows [n, d]; of very long ones some features, the same for all clients."""
    flat = x.flatten(1)
    if flat.shape[1] <= FEATURES:
        return flat
    order = bits(0, "probe", np.arange(flat.shape[1], dtype=np.uint64)).argsort(kind="stable")[:FEATURES]
    return flat[:, torch.from_numpy(order).to(x.device)]


def _answers(y: Tensor, classes: int | None) -> Tensor:
    """[n, c]: numbers as they are, classes as 0 and 1 less their mean."""
    if classes is None:
        return y.double().reshape(len(y), y.shape[1:].numel())  # of no samples, too
    return torch.nn.functional.one_hot(y.long(), classes).double() - 1 / classes
