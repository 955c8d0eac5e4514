"""Is a module a plain chain of convolutions and dense layers? Then a GPU runs its steps by hand."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from torch import Tensor, nn

from ifca.models.networks import CentreCrop, ResponseNorm, Standardise

WITHOUT_PARAMETERS = (nn.Identity, nn.Unflatten, CentreCrop, Standardise)


@dataclass(frozen=True)
class Pool:
    """Max pooling over a square."""

    size: int
    stride: int
    padding: int


@dataclass(frozen=True)
class Norm:
    """Local response normalisation, x / (1 + band x^2)^beta."""

    band: Tensor  # [channels, channels]
    beta: float


@dataclass(frozen=True)
class Conv:
    """A convolution that keeps the image's size, then ReLU, then what follows before the next layer."""

    weight: str
    bias: str
    size: int  # of its square kernel
    after: tuple[Pool | Norm, ...]


@dataclass(frozen=True)
class Chain:
    """before (no parameters) -> convolutions -> flatten -> dense layers with ReLU between them."""

    before: nn.Sequential
    convs: tuple[Conv, ...]
    dense: tuple[tuple[str, str], ...]  # (weight, bias)


def chain_of(module: nn.Module | None) -> Chain | None:
    """The chain that a Sequential is, or None where any layer of it is of another kind."""
    if type(module) is not nn.Sequential or _shares_or_hooks(module):
        return None
    parts = [(name, part) for name, part in module.named_children() if type(part) is not nn.Identity]
    before = nn.Sequential()
    while parts and type(parts[0][1]) in WITHOUT_PARAMETERS:
        before.append(copy.deepcopy(parts.pop(0)[1]))
    convs = []
    while len(parts) > 1 and type(parts[0][1]) is nn.Conv2d:
        (name, conv), (_, relu) = parts.pop(0), parts.pop(0)
        after = []
        while parts and (made := _between(parts[0][1])) is not None:
            after.append(made)
            parts.pop(0)
        if not _keeps_size(conv) or type(relu) is not nn.ReLU:
            return None
        convs.append(Conv(f"{name}.weight", f"{name}.bias", _side(conv), tuple(after)))
    dense = _dense(parts)
    return Chain(before, tuple(convs), dense) if convs and dense else None


def _shares_or_hooks(module: nn.Module) -> bool:
    names = list(module.named_parameters(remove_duplicate=False))
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    return hooked or len({id(value) for _, value in names}) != len(names)


def _side(conv: nn.Module) -> int:
    return conv.kernel_size[0] if isinstance(conv, nn.Conv2d) else 0


def _keeps_size(conv: nn.Module) -> bool:
    """Odd square kernel, stride 1, zeros around, and numbers of channels that tiles can have."""
    if not isinstance(conv, nn.Conv2d) or conv.bias is None or conv.padding_mode != "zeros":
        return False
    size, out = conv.kernel_size[0], conv.out_channels
    square = conv.kernel_size == (size, size) and size % 2 == 1 and size > 1
    same = conv.padding in ("same", (size // 2, size // 2)) and conv.stride == conv.dilation == (1, 1)
    return square and same and conv.groups == 1 and 16 <= out <= 64 and out & (out - 1) == 0


def _between(part: nn.Module) -> Pool | Norm | None:
    if type(part) is ResponseNorm:
        return Norm(part.band, part.beta)
    if type(part) is not nn.MaxPool2d or part.ceil_mode or part.return_indices or part.dilation != 1:
        return None
    numbers = (part.kernel_size, part.stride, part.padding)
    if not all(isinstance(number, int) for number in numbers) or int(part.kernel_size) > 15:  # type: ignore[arg-type]
        return None
    return Pool(*numbers)  # type: ignore[arg-type]


def _dense(parts: list[tuple[str, nn.Module]]) -> tuple[tuple[str, str], ...]:
    """Flatten, Linear, ReLU, Linear, ...: the names of the Linear layers' parameters; else nothing."""
    kinds = [type(part) for _, part in parts]
    linear = [(name, part) for name, part in parts if isinstance(part, nn.Linear)]
    if kinds != [nn.Flatten, *[nn.Linear, nn.ReLU] * (len(linear) - 1), nn.Linear]:
        return ()
    if any(part.bias is None for _, part in linear) or parts[0][1].start_dim != 1:
        return ()
    return tuple((f"{name}.weight", f"{name}.bias") for name, _ in linear)
