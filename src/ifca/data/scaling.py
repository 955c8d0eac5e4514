"""Standardised features and targets: each to mean 0 and variance 1, over all training clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ifca.data.clients import Clients, features


@dataclass(frozen=True)
class Scaling:
    """x -> (x - mean) / scale, feature by feature, or target by target."""

    mean: Tensor  # [...] the shape of a sample
    scale: Tensor  # [...] standard deviations; 1 where a feature never changes

    @classmethod
    def of(cls, clients: Clients) -> Scaling:
        """Of the features, from the training samples of all clients.

        The mean and then the mean squared deviation are sums over clients divided by the number of
        samples: numbers that a federation can add up without showing anybody's data.
        """
        return cls._of(features(clients.x, torch.float64))

    @classmethod
    def of_targets(cls, clients: Clients) -> Scaling:
        """The same of the targets."""
        return cls._of(clients.y.double())

    @classmethod
    def _of(cls, x: Tensor) -> Scaling:
        mean = x.mean(0)
        scale = ((x - mean) ** 2).mean(0).sqrt()
        return cls.with_constants(mean, scale, x.abs().amax(0))

    @classmethod
    def with_constants(cls, mean: Tensor, scale: Tensor, largest: Tensor) -> Scaling:
        """The same where some never change, which are not scaled; largest: absolute values."""
        constant = scale <= 1e-12 * largest.clamp(min=1e-300)
        return cls(mean, torch.where(constant, 1.0, scale))

    def apply(self, x: Tensor) -> Tensor:
        """Features as a model sees them; bytes are pixels here too. Floats keep their precision."""
        exact = features(x, torch.float64)
        kind = torch.float64 if x.dtype == torch.float64 else torch.float32
        return ((exact - self.mean.to(x.device)) / self.scale.to(x.device)).to(kind)

    def undo(self, outputs: Tensor) -> Tensor:
        """What a model says [n, ...] in the units of the targets; float64, as a mean may dwarf its scale."""
        scale, mean = (part.flatten().to(outputs.device) for part in (self.scale, self.mean))
        return (outputs.reshape(len(outputs), -1).double() * scale + mean).view_as(outputs)

    def to_json(self) -> dict[str, Any]:
        """For a file's header."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_json(cls, content: dict[str, Any] | None) -> Scaling | None:
        """The inverse of to_json."""
        if content is None:
            return None
        return cls(*(torch.tensor(content[name], dtype=torch.float64) for name in ("mean", "scale")))
