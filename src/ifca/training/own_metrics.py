"""Metrics of the user's own: of each client under the model that serves it, whatever engine trained it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.types import Params, select
from ifca.data import Clients
from ifca.training.job import Job


def client_metrics(job: Job, theta: Params, clients: Clients, rule: Tensor) -> dict[str, Tensor]:
    """Name -> value of each client [m]; rule: the model that serves each, -1: none (NaN)."""
    table = {name: torch.full((len(clients),), torch.nan, dtype=torch.float64) for name in job.metrics}
    for i, j in enumerate(rule.tolist() if job.metrics else []):
        if j < 0:
            continue
        data = clients.one(i, job.device, job.dtype)
        with torch.no_grad():
            output, y = in_units(job, job.task.output(select(theta, j), data.x), data.y)
            for name in job.metrics:
                table[name][i] = _value(job, name, output, y)
    return table


def in_units(job: Job, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and targets in the units of the data, where targets were scaled for training."""
    scaling = job.federation.target_scaling
    return (output, y) if scaling is None else (scaling.undo(output), scaling.undo(y))


def mean_metrics(table: dict[str, Tensor], sizes: Tensor) -> dict[str, float | None]:
    """Over clients, weighted by their samples (as if all were one, where a metric is a mean over samples)."""
    means = {}
    for name, values in table.items():
        known = torch.isfinite(values)
        mean = float((values * sizes)[known].sum() / sizes[known].sum()) if bool(known.any()) else math.nan
        means[name] = mean if math.isfinite(mean) else None
    return means


def _value(job: Job, name: str, output: Tensor, y: Tensor) -> float:
    """A metric per sample is averaged, one per batch is taken as it is."""
    try:
        value = torch.as_tensor(job.metrics[name](output, y))
    except Exception as reason:
        what = f"{type(reason).__name__}: {str(reason).splitlines()[0] if str(reason) else reason!r}"
        raise InvalidInput(f"model.metrics: {name} fails ({what})") from reason
    if value.shape not in (torch.Size([]), y.shape[:1]):
        shape = tuple(value.shape)
        raise InvalidInput(
            f"model.metrics: {name} must give a number, or one per sample [{len(y)}], got {shape}"
        )
    return float(value.double().mean())
