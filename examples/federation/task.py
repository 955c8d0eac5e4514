"""The user's part: one client's data, and the model. Nothing here knows of clusters or rounds."""

from __future__ import annotations

import numpy as np
from flwr.app import Context
from torch import nn

from ifca import Client

# By maker: how much of the gas each of a sensor's four channels stands for. Nobody tells the server.
MAKERS = np.array([[1.0, 0.2, 0.2, 0.0], [0.2, 1.0, 0.0, 0.2], [0.0, 0.2, 0.3, 1.0]])


def load_client(context: Context) -> Client:
    """The measurements of this node's sensor. In real life: read a file that only this node has."""
    sensor = int(context.node_config["partition-id"])
    rng = np.random.default_rng(sensor)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    gas = x @ MAKERS[sensor % 3] + rng.normal(0, 0.1, 60)
    y = gas.astype(np.float32)  # floats make it a regression
    return Client(x[:40], y[:40], x[40:], y[40:], id=f"sensor-{sensor:02d}", cluster=sensor % 3)


def make_model() -> nn.Module:
    """A freshly initialised model; any torch module will do."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
