"""What the tests share: small federations of unequal clients, and one thread per test process."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile

import numpy as np
import pytest
import torch

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
    convex = recipe.algorithm == "giant"
    options = {"precision": "float64", **options}
    return Job(federation, recipe, lambda: logistic(inputs, 3) if convex else mlp(inputs, 3, (5,)), **options)  # type: ignore[arg-type]


def scalar_job(points: list[tuple[float, float]], theta: list[float], recipe: Recipe) -> Job:
    """Clients with one sample (x, y) each, scalar models y = theta x: numbers to redo on paper."""
    clients = [Client(np.array([[x]]), np.array([y])) for x, y in points]
    start: Params = {"fc1.weight": torch.tensor(theta, dtype=torch.float64).reshape(-1, 1, 1)}
    return Job(
        Federation.from_clients(clients), recipe, lambda: linear(1), precision="float64", warm_start=start
    )


@pytest.fixture
def unequal() -> Federation:
    """Seven clients of 4 to 20 samples."""
    return groups((12, 7, 20, 4, 9, 16, 11))
