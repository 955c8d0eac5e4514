"""What the tests share: small federations of unequal clients, and one thread per test process."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from ifca.core.recipe import Recipe
from ifca.core.types import Params
from ifca.data import Client, Federation
from ifca.models import linear, logistic, mlp
from ifca.training import Job

STATE = tempfile.mkdtemp(prefix="ifca-state-")  # not the state folder of whoever runs the tests
atexit.register(shutil.rmtree, STATE, ignore_errors=True)
os.environ["XDG_STATE_HOME"] = STATE
torch.set_num_threads(1)  # the tests run in parallel processes
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as a shell's background jobs have it, and their children
    signal.signal(signal.SIGINT, signal.default_int_handler)


def groups(sizes: tuple[int, ...], clusters: int = 2, dimension: int = 6, seed: int = 0) -> Federation:
    """Clients of unequal size whose labels follow one rule per cluster; test parts too."""
    rng = np.random.default_rng(seed)
    rules = rng.normal(size=(clusters, dimension, 3)) * 2
    clients = []
    for i, n in enumerate(sizes):
        x = rng.normal(size=(n + 5, dimension))
        y = (x @ rules[i % clusters]).argmax(1)
        clients.append(Client(x[:n], y[:n], x[n:], y[n:], id=f"c{i}", cluster=i % clusters))
    return Federation.from_clients(clients, classes=3)


def make_job(federation: Federation, recipe: Recipe, **options: object) -> Job:
    """A job in double precision, where engines agree to many digits and no ReLU sits on its edge."""
    inputs = int(np.prod(federation.input_shape))
    options = {"precision": "float64", **options}

    def model() -> nn.Module:
        if recipe.batch_norm != "refuse":
            return with_norm(inputs)
        return logistic(inputs, 3) if recipe.algorithm == "giant" else mlp(inputs, 3, (5,))

    return Job(federation, recipe, model, **options)  # type: ignore[arg-type]


def with_norm(inputs: int) -> nn.Module:
    """A network with batch norm and dropout."""
    layers = {"fc1": nn.Linear(inputs, 5), "norm": nn.BatchNorm1d(5), "relu": nn.ReLU()}
    return nn.Sequential(OrderedDict({**layers, "drop": nn.Dropout(0.2), "fc2": nn.Linear(5, 3)}))


def scalar_job(points: list[tuple[float, float]], theta: list[float], recipe: Recipe) -> Job:
    """Clients with one sample (x, y) each, scalar models y = theta x: numbers to redo on paper."""
    clients = [Client(np.array([[x]]), np.array([y])) for x, y in points]
    start: Params = {"fc1.weight": torch.tensor(theta, dtype=torch.float64).reshape(-1, 1, 1)}
    return Job(
        Federation.from_clients(clients), recipe, lambda: linear(1), precision="float64", warm_start=start
    )


def unequal_clients() -> Federation:
    """Seven clients of 4 to 20 samples."""
    return groups((12, 7, 20, 4, 9, 16, 11))


@pytest.fixture
def unequal() -> Federation:
    """Seven clients of 4 to 20 samples."""
    return unequal_clients()
