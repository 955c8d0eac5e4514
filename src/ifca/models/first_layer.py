"""Does a module begin with a linear layer? Then full-batch training has an exact fast path."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn
from torch.func import functional_call

from ifca.core.types import FirstLayer, Params


def first_layer(module: nn.Module) -> FirstLayer | None:
    """The first layer and the rest of a Linear, or of a Sequential [Flatten,] Linear, ...; else None."""
    if any(part._forward_hooks or part._forward_pre_hooks for part in module.modules()):
        return None
    if type(module) is nn.Linear:
        return FirstLayer("weight", _bias("", module), lambda _rest, z: z, dense=())
    if type(module) is not nn.Sequential or len(set(map(id, module.parameters()))) != len(
        list(module.named_parameters(remove_duplicate=False))
    ):
        return None
    parts = list(module.named_children())
    while parts and (type(parts[0][1]) is nn.Identity or _flattens(parts[0][1])):
        parts.pop(0)
    if not parts or type(parts[0][1]) is not nn.Linear:
        return None
    (name, linear), tail = parts[0], parts[1:]
    rest_module = nn.Sequential(OrderedDict(tail))

    def rest(theta: Params, z: Tensor) -> Tensor:
        result: Tensor = functional_call(rest_module, theta, (z,))
        return result

    return FirstLayer(f"{name}.weight", _bias(f"{name}.", linear), rest, _dense(tail))


def _flattens(part: nn.Module) -> bool:
    return type(part) is nn.Flatten and part.start_dim == 1 and part.end_dim == -1


def _bias(prefix: str, linear: nn.Module) -> str | None:
    return f"{prefix}bias" if getattr(linear, "bias", None) is not None else None


def _dense(tail: list[tuple[str, nn.Module]]) -> tuple[tuple[str, str], ...] | None:
    """ReLU, Linear, ReLU, Linear, ...: the names of the Linear layers' parameters."""
    if len(tail) % 2:
        return None
    names = []
    for (_, relu), (name, linear) in zip(tail[::2], tail[1::2], strict=True):
        if type(relu) is not nn.ReLU or type(linear) is not nn.Linear or linear.bias is None:
            return None
        names.append((f"{name}.weight", f"{name}.bias"))
    return tuple(names)
