"""Bring your own clients and your own torch model.

Sixty sensors measure a gas with four channels each. Each comes from one of three makers, and each maker's
channels answer to the gas in another way; nobody kept a list of who made which. IFCA finds the three groups
and a calibration for each. Then a new sensor arrives with a few reference measurements and gets its group.

    python examples/own_data.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ifca import IFCA, Federation
from ifca.core.metrics import cluster_accuracy

Array = NDArray[Any]

# By maker: how much of the gas each of the four channels stands for.
MAKERS = np.array([[1.0, 0.2, 0.2, 0.0], [0.2, 1.0, 0.0, 0.2], [0.0, 0.2, 0.3, 1.0]])


class Calibration(nn.Module):
    """From what a sensor shows (four channels) to the gas: a linear part and a small network.

    Any module will do whose output for a sample depends on that sample only (batch norm needs the
    setting batch_norm).
    """

    def __init__(self) -> None:
        super().__init__()
        self.straight = nn.Linear(4, 1)
        self.hidden = nn.Linear(4, 8)
        self.bend = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        """x: [n, 4]; returns [n, 1]."""
        gas: Tensor = self.straight(x) + self.bend(torch.tanh(self.hidden(x)))
        return gas


def measurements(maker: int, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Readings x [n, 4] of one sensor beside a reference instrument, and the true gas y [n]."""
    x = rng.normal(size=(n, 4))
    gas = x @ MAKERS[maker]
    gas += 0.2 * np.sin(3 * gas) + rng.normal(0, 0.1, n)  # not quite linear, not quite exact
    # Floats as y make it a regression, whole numbers a classification.
    return x.astype(np.float32), gas.astype(np.float32)


def main() -> None:
    """Fit, compare with the truth, assign a new client, predict."""
    rng = np.random.default_rng(0)
    makers = rng.permutation(np.repeat([0, 1, 2], 20))  # the truth; training never looks at it
    data = [measurements(maker, int(rng.integers(20, 60)), rng) for maker in makers]  # unequal sizes are fine
    federation = Federation.from_arrays(
        x=[x for x, _ in data], y=[y for _, y in data], ids=[f"sensor-{i:02d}" for i in range(len(data))]
    )

    model = IFCA(k=3, model=Calibration, rounds=40, step_size=0.05, local_steps=10, restarts=5, seed=0)
    model.fit(federation)

    print("training loss of the restarts:", " ".join(f"{loss:.4f}" for loss in model.restarts_))
    print("\n          cluster 0  cluster 1  cluster 2")
    for maker in range(3):
        counts = np.bincount(model.labels_[makers == maker], minlength=3)
        print(f"maker {maker} " + "".join(f"{count:11d}" for count in counts))
    print(f"sensors in the right group: {100 * cluster_accuracy(makers, model.labels_):.0f} %")

    x, y = measurements(1, 10, rng)  # a new sensor of maker 1: ten reference measurements
    group = model.assign(x, y)
    print(f"\nnew sensor: losses {model.losses(x, y).round(4)} -> cluster {group}")
    friends = np.bincount(makers[model.labels_ == group], minlength=3)
    print(f"in that cluster: {friends.tolist()} sensors of makers 0, 1, 2")

    x, y = measurements(1, 1000, rng)  # from now on it measures alone
    for cluster in range(3):
        error = np.abs(model.predict(x, cluster) - y).mean()
        print(f"mean error with the model of cluster {cluster}: {error:.3f}" + " *" * (cluster == group))


if __name__ == "__main__":
    main()
