"""Layers that behave otherwise in gradient steps, as pure functions that torch.func can map over clients.

Torch's own dropout draws from a global random state, and its batch norm writes into itself. In a copy of the
model each is replaced by a layer that asks the pass for what it needs: the batch and its random numbers.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from ifca.core.errors import InvalidInput
from ifca.core.types import Batch, Data, Params


class Pass(threading.local):
    """What layers must know of the pass that they are in. One per thread: federations may use several."""

    def __init__(self) -> None:
        self.batch: Data | Batch | None = None  # None: not in a gradient step
        self.calls = 0  # of layers that draw, so far
        self.changed: Params = {}  # entries of theta that the pass itself changes

    @contextmanager
    def over(self, batch: Data | Batch) -> Iterator[Params]:
        """A pass over a batch; gives the dictionary that collects what changes."""
        self.batch, self.calls, self.changed = batch, 0, {}
        try:
            yield self.changed
        finally:
            self.batch, self.changed = None, {}

    def samples(self, layer: str, x: Tensor) -> Data | Batch:
        """The batch, whose samples must be the first dimension of what a layer is given."""
        assert self.batch is not None
        if x.dim() < 2 or len(x) != len(self.batch.weight):
            raise InvalidInput(
                f"model: layer {layer} is given a tensor of shape {tuple(x.shape)}, whose first dimension "
                f"must be that of the {len(self.batch.weight)} samples"
            )
        return self.batch


Replace = Callable[[str, nn.Module], "nn.Module | None"]
"""name, layer -> the layer in its place; None: it stays."""


def replaced(module: nn.Module, instead: Replace) -> nn.Module | None:
    """A copy with some layers replaced, all names as before; None where there is nothing to replace."""
    module = copy.deepcopy(module)
    found = {part: new for name, part in module.named_modules() if (new := instead(name, part)) is not None}
    for parent in list(module.modules()):
        for name, part in list(parent._modules.items()):  # named_children leaves out layers used twice
            if part in found:
                setattr(parent, name, found[part])
    return None if not found else found.get(module, module)
