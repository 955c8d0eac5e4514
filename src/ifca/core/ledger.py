"""Bytes down (server to client) and up, for every algorithm: what the paper's two savings save.

Counted is what a round must carry: models, gradients, identities and losses; not the messages' envelopes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ifca.core.types import Params

IDENTITY_BYTES = 4  # one int32: s_i as the number of the cluster
LOSS_BYTES = 4  # one float32 for each model that was judged


@dataclass(frozen=True)
class Wire:
    """The weight of one model on the wire."""

    shared: int  # bytes of the layers that all clusters share
    clustered: int  # bytes of the layers that each cluster has for itself
    k: int  # models that there are

    @classmethod
    def of(cls, theta: Params, live: Tensor, shared: frozenset[str]) -> Wire:
        """Weigh the models of a state; live: [k]."""
        size = {name: v[0].numel() * v.element_size() for name, v in theta.items()}
        together = sum(size[name] for name in shared)
        return cls(together, sum(size.values()) - together, int(live.sum()))

    def down(self, own_only: Tensor) -> Tensor:
        """Shared layers once; clustered layers k times, or once to a client that is sent its own model."""
        copies = torch.where(own_only, 1, self.k)
        return self.shared + self.clustered * copies

    def up(self, own_only: Tensor) -> Tensor:
        """One update, its cluster's number, and the losses of the models that were sent."""
        losses = torch.where(own_only, 1, self.k)
        return self.shared + self.clustered + IDENTITY_BYTES + LOSS_BYTES * losses
