"""The clients' data. Replace load() by a function that reads yours.

Here thirty machines are drawn: each has four readings and a load to predict, and the readings mean
something else on each of three kinds of machine. Nobody tells the server which machine is of which kind.
"""

from __future__ import annotations

import torch
from torch.utils.data import Dataset, TensorDataset

KINDS = torch.tensor([[2.0, -1.0, 0.0, 0.5], [-1.0, 2.0, 0.5, 0.0], [0.0, 0.5, -2.0, 1.0]])
Pair = tuple[Dataset[tuple[torch.Tensor, ...]], Dataset[tuple[torch.Tensor, ...]]]


def load(machines: int = 30, samples: int = 60, seed: int = 0) -> dict[str, Pair]:
    """Of each client a name, a dataset to train on and one to test on; each gives pairs (x, y).

    Float targets y make it a regression, whole numbers a classification. The arguments can be set in
    config.toml: [data.arguments].
    """
    rng = torch.Generator().manual_seed(seed)
    clients: dict[str, Pair] = {}
    for i in range(machines):
        x = 20 + 5 * torch.randn(samples, 4, generator=rng)  # not around zero: config.toml standardises
        y = (x - 20) / 5 @ KINDS[i % 3] + 0.1 * torch.randn(samples, generator=rng)
        cut = int(0.8 * samples)
        clients[f"machine-{i:02d}"] = (TensorDataset(x[:cut], y[:cut]), TensorDataset(x[cut:], y[cut:]))
    return clients
