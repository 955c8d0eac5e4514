"""Forward and backward of a convolutional classifier, all clients at once, each with weights of its own.

The chain of layers (engines/chain.py) is written out: convolutions, pooling and normalisation are Triton
kernels on channels-last activations; dense layers are batched products, and one kernel back. What comes
before the first convolution has no parameters and is done once a round. Parameters, their gradients and all
sums are float32; activations are bfloat16 where that is asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ifca.core.types import Params
from ifca.engines.cuda.chain import Chain, Conv, Pool
from ifca.engines.cuda.halves import halved

try:
    from ifca.engines.cuda import conv_kernels, dense_kernel, pool_kernels
except ImportError:  # Triton is optional: without it steps are mapped by vmap
    conv_kernels = dense_kernel = pool_kernels = None  # type: ignore[assignment]


class Kept(NamedTuple):
    """What the way back needs of a layer."""

    inputs: Tensor
    weight: Tensor  # in the layers' precision
    between: tuple[Tensor, ...] = ()  # inputs of normalisations; places of maxima
    sides: tuple[tuple[int, int], ...] = ()  # of the images before each of them


class ConvNet:
    """One chain of layers. Parameters have a leading dimension c: of clients, or of models."""

    def __init__(
        self, chain: Chain, sample: Tensor, low: torch.dtype | None, precision: str, clients: int
    ) -> None:
        """sample: one input [1, ...]; precision: of float32 products in Triton's words; clients: at most so
        many at once.
        """
        self.chain, self.type, self.precision = chain, low or torch.float32, precision
        _, self.channels, _, self.width = chain.before(sample).shape
        self.size = chain.convs[0].size
        self.stored, self.segment, self.line = conv_kernels.first_shape(self.width, self.channels, self.size)
        self.halves = precision == "tf32" and self.type == torch.float32  # fp16 has as many bits
        self.unit = torch.ones(clients, device=sample.device)  # of those whose images were prepared last

    def prepare(self, x: Tensor, clients: int) -> Tensor:
        """Images as the first convolution reads them: zeros around, channels last, whole segments.

        clients: one after the other, with as many images each. For products in TF32 images are fp16 numbers
        times a power of two of the client, made once, not in every step.
        """
        x = self.chain.before(x).permute(0, 2, 3, 1)
        half = self.size // 2
        right = self.line // self.stored - self.width - half
        x = pad(x, (0, self.stored - self.channels, half, right, half, half))
        if self.halves:
            numbers, self.unit[:clients] = halved(x.reshape(clients, -1))
            return numbers.view(len(x), -1, self.line)
        return x.to(self.type).reshape(len(x), -1, self.line)

    def forward(self, theta: Params, images: Tensor, at: Tensor, each: int) -> tuple[Tensor, list[Kept]]:
        """Outputs [c, b, classes] for images number at [c, b] of those that were prepared last, each client's
        so many; and what the way back needs.
        """
        kept: list[Kept] = []
        a = images
        for conv in self.chain.convs:
            inputs, bias = a, theta[conv.bias]
            if conv is self.chain.convs[0]:
                weight = self._first_weight(theta[conv.weight])
                tail = self.width, self.stored, self.precision, self.unit, each
                a = conv_kernels.conv_first(a, at, weight, bias, *tail)
            else:
                weight = self._laid(theta[conv.weight].permute(0, 3, 4, 1, 2))
                a = conv_kernels.conv(a, weight, bias, self.precision)
            a, between, sides = self._between(conv, a)
            kept.append(Kept(inputs, weight, between, sides))
        shape, a = a.shape, a.permute(0, 1, 4, 2, 3).flatten(2)  # torch's order: channels first
        for name, bias_name in self.chain.dense:
            weight = theta[name].to(self.type)
            kept.append(Kept(a, weight, sides=((shape[2], shape[3]),)))
            z = dense_kernel.product(a, weight.transpose(1, 2)) + theta[bias_name][:, None]
            a = z.relu().to(self.type)
        return z, kept

    def descend(self, theta: Params, at: Tensor, each: int, g: Tensor, kept: list[Kept]) -> None:
        """Take all gradients from theta, in place; g: the gradient by the outputs, times the step.

        The images of a row of at are one client's.
        """
        convs = self.chain.convs
        for i, (name, bias_name) in reversed(list(enumerate(self.chain.dense))):
            layer = kept[len(convs) + i]
            low, bias = g.to(self.type), g.sum(1)
            g = dense_kernel.dense_back(low, layer.inputs, theta[name], self.precision, relu=i > 0)
            theta[bias_name].sub_(bias)
        high, wide = layer.sides[0]
        g = self._laid(g.view(*g.shape[:2], -1, high, wide).permute(0, 1, 3, 4, 2))
        for i, conv in reversed(list(enumerate(convs))):
            g = self._back_between(conv, kept[i], g)
            if i == 0:
                slope, bias = self._first_slope(kept[0].inputs, at, each, g)
            else:
                slope, bias = conv_kernels.conv_slopes(kept[i].inputs, g, conv.size, self.precision)
                turned = self._laid(theta[conv.weight].flip(3, 4).permute(0, 3, 4, 2, 1))
                g = conv_kernels.conv(g, turned, None, self.precision)
            theta[conv.weight].sub_(slope.permute(0, 4, 3, 1, 2))  # from [c, ks, ks, ci, co]
            theta[conv.bias].sub_(bias)

    def _between(
        self, conv: Conv, a: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...], tuple[tuple[int, int], ...]]:
        between: list[Tensor] = []
        sides: list[tuple[int, int]] = []
        for layer in conv.after:
            sides.append((a.shape[2], a.shape[3]))
            if isinstance(layer, Pool):
                a, where = pool_kernels.pool(a, layer.size, layer.stride, layer.padding, relu=not between)
                between.append(where)
            else:
                between.append(a)
                a = pool_kernels.norm(a, layer.band, layer.beta, self.precision)
        return a, tuple(between) or (a,), tuple(sides)

    def _back_between(self, conv: Conv, kept: Kept, g: Tensor) -> Tensor:
        """From the gradient by what a convolution's layer gives on to that by its ReLU's input."""
        for i, layer in reversed(list(enumerate(conv.after))):
            if isinstance(layer, Pool):
                window = (layer.size, layer.stride, layer.padding)
                g = pool_kernels.unpool(g, kept.between[i], *kept.sides[i], *window)
            else:
                band, beta = layer.band, layer.beta
                g = pool_kernels.unnorm(kept.between[i], band, beta, g, self.precision, relu=i == 0)
        return g if conv.after else torch.where(kept.between[0] > 0, g, 0)

    def _first_weight(self, weight: Tensor) -> Tensor:
        """[c, co, ci, ks, ks] -> [c, ks, co, segment], zero where no tap is."""
        lines = pad(weight.permute(0, 3, 1, 4, 2), (0, self.stored - self.channels)).flatten(3)
        return pad(lines, (0, self.segment - lines.shape[3])).to(self.type)

    def _first_slope(self, images: Tensor, at: Tensor, each: int, g: Tensor) -> tuple[Tensor, Tensor]:
        unit = self.unit[at[:, 0] // each]
        slope, bias = conv_kernels.conv_first_slopes(
            images, at, g, self.size, self.stored, self.segment, self.precision, unit
        )
        taps = slope[:, :, : self.size * self.stored]
        return taps.reshape(*taps.shape[:2], self.size, self.stored, -1)[:, :, :, : self.channels], bias

    def _laid(self, t: Tensor) -> Tensor:
        return torch.empty(t.shape, dtype=self.type, device=t.device).copy_(t)


def available() -> bool:
    """Whether the kernels are."""
    return conv_kernels is not None
