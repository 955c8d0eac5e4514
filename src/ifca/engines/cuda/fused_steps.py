"""The layers of the fused round (fused.py), forward and back: which kernels are launched, with which tiles.

Imported only where Triton is there.
"""
# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
from torch import Tensor

from ifca.engines.cuda.fused_kernels import _backward, _forward, _signal, _update
from ifca.engines.cuda.fused_rows import ROWS, SMALL
from ifca.engines.cuda.fused_sums import Judged, Moved, Turns
from ifca.engines.cuda.halves import powers_of_two
from ifca.engines.cuda.layer_kernels import _layer, _layer_backward, _logit_loss, _slope
from ifca.engines.cuda.sent import Halves, Layers, Sent

FORWARD = {"hidden": 128, "deep": 32, "stages": 3, "warps": 4, "registers": 168}  # measured on an H200
BACKWARD = {"hidden": 64, "warps": 4}
LAYER = {"hidden": 128, "deep": 32, "stages": 3, "warps": 4, "registers": 168}
FEW = 64  # steps after which S, rounded to TF32's bits in each, is exact to a thousandth
SLOPE = {"out": 64, "in": 128, "deep": 32, "stages": 3, "warps": 4}


class Forward:
    """Activations and logits of all rows, each client under a model of some layers."""

    def __init__(self, turns: Turns, z: Tensor, unit: Tensor, sent: Sent, take) -> None:
        """z: [rows, k h], only read, to be multiplied by unit [k]; fp16 where other numbers are one, too."""
        self.turns, self.z, self.unit, self.sent, self.low = turns, z, unit, sent, z.dtype == torch.float32
        self.wide, self.widths = SMALL if turns.small else ROWS, sent.widths()
        rooms = ((f"r{i}", (len(turns.y), h)) for i, h in enumerate(self.widths))
        self.r = [_room(take, *room, self.low) for room in rooms]
        self.blocks = [min(FORWARD["hidden"], max(16, triton.next_power_of_2(h))) for h in self.widths]
        self.pieces = triton.cdiv(self.widths[-1], self.blocks[-1])
        self.logits = take("logits", (self.pieces, len(turns.y), sent.cp))

    def units_of(self, models: Tensor) -> list[Tensor]:
        """Of clients that begin with some models [p]: of Z_0, and of each layer's weights: [p] each."""
        return [unit[models] for unit in (self.unit, *self.sent.units)]

    def __call__(
        self, layers: Layers, units: list[Tensor], whose: Tensor, at: Tensor, moved: tuple | None
    ) -> None:
        """whose: [p] the model of each client; at: [p] where its Z_0 begins, in numbers.

        moved: what Z_0 has moved by: Gram matrices, S, its units and gamma; None: nothing.
        """
        tiles, rows, h, cp = self.turns.tiles, len(self.turns.y), self.widths[0], self.sent.cp
        of_tile = (tiles.client, tiles.first, tiles.size)
        tail = (*layers.last, whose, units[-1], self.logits, rows)
        grams, s, ss, gamma = moved or (self.r[0], self.r[0], self.unit, self.unit)
        _forward[(len(tiles.client) * triton.cdiv(h, self.blocks[0]),)](
            *of_tile, tiles.start, self.z, at, *grams, tiles.gram, *s, *self.r[0], ss, self.turns.scale,
            units[0], gamma, *tail, self.z.stride(0), h, cp, self.wide, self.blocks[0], FORWARD["deep"],
            FORWARD["stages"], moved is None, len(self.r) == 1, self.low,
            num_warps=FORWARD["warps"], num_stages=1, maxnreg=FORWARD["registers"],
        )  # fmt: skip
        for i, (weight, bias) in enumerate(zip(layers.hidden, layers.biases, strict=True)):
            wide, out, block = self.widths[i], self.widths[i + 1], self.blocks[i + 1]
            _layer[(len(tiles.client) * triton.cdiv(out, block),)](
                *of_tile, tiles.start, *self.r[i], *weight, bias,
                units[i + 1], *self.r[i + 1], *tail, wide, out, cp, self.wide, block, LAYER["deep"],
                LAYER["stages"], i + 2 == len(self.r), self.low, num_warps=LAYER["warps"], num_stages=1,
                maxnreg=LAYER["registers"],
            )  # fmt: skip


def layer_losses(forward: Forward, own: Tensor | None) -> Tensor:
    """What each tile adds to its client's mean loss under every model, layer by layer: [tiles, k].

    own: [p] under that of each client, of which forward has Z: [tiles, 1].
    """
    turns, sent = forward.turns, forward.sent
    tiles, k = turns.tiles, 1 if own is not None else len(sent.out)
    found, stride = torch.empty(len(tiles.client), k, device=forward.z.device), forward.z.stride(0)
    for j in range(k):
        whose = torch.full_like(tiles.start, j) if own is None else own
        at = tiles.start * stride + j * forward.widths[0]
        forward(sent.layers, forward.units_of(whose), whose, at, None)
        _logit_loss[(len(tiles.client),)](
            tiles.client, tiles.first, tiles.size, tiles.start, whose, forward.logits, sent.layers.bias,
            turns.y, found, j, k, len(turns.y), sent.cp, forward.pieces, ROWS, num_warps=4,
        )  # fmt: skip
    return found


def local_steps(forward: Forward, judged: Judged, grams: Halves, gamma: Tensor, tau: int, take) -> Moved:
    """All local steps of all clients: a S as fp16 parts [rows, 2 h or h], each client's from its row of
    cluster order on, times the power of two us of its model; us [k]; and the summed gradients of its layers
    after the first.
    """
    turns, sent = forward.turns, forward.sent
    back = Backward(forward, judged, gamma, tau, take)
    layers, whose = sent.layers, judged.identity
    for q in range(tau):
        moved = (grams, back.d[0], back.units[0], gamma) if q else None
        forward(layers, back.began, whose, judged.at, moved)
        back(layers, whose, first=q == 0, last=q == tau - 1)
        layers, whose = back.held, torch.arange(len(turns.a), device=whose.device)
    h, c = forward.widths[-1], sent.classes
    between = [part for pair in zip(back.slopes, back.of_bias, strict=True) for part in pair]
    return back.parts, back.us, *between, back.moved[:, :h, :c].transpose(1, 2), back.moved[:, h, :c]


class Backward:
    """From logits to dF/dz of every hidden layer, to S, and to each client's own later layers.

    |dF/dz| has a bound (Sent.bounds), so S is below tau times it; a client's units bring that to 2^11, 32
    times under fp16's largest number: an overflow would show as inf, not as a wrong number. us does so for
    the sums of a model's clients.
    """

    def __init__(self, forward: Forward, judged: Judged, gamma: Tensor, tau: int, take) -> None:
        self.forward, self.judged, self.gamma = forward, judged, gamma
        turns, sent, widths = forward.turns, forward.sent, forward.widths
        rows, p, h = len(turns.y), len(turns.a), widths[-1]
        share, models = 1 / turns.tiles.size.clamp(min=1).float(), judged.identity
        self.began = forward.units_of(models)
        bounds = sent.bounds(share, models)
        bounds[0] *= tau
        self.units = [powers_of_two(bound, 2048.0) for bound in bounds]
        own = models == torch.arange(len(forward.unit), device=models.device)[:, None]
        self.us = powers_of_two(torch.where(own, bounds[0] * turns.a.abs(), 0).amax(1), 2048.0)
        self.of_sum, self.ps = self.us[models], powers_of_two(share, 512.0)
        low, self.sums = forward.low, forward.low or tau > FEW
        self.d = [
            _room(take, f"d{i}", (rows, width), low or (self.sums and i == 0))
            for i, width in enumerate(widths)
        ]  # of the first layer S
        self.signal, self.parts = (
            _room(take, "p", (rows, sent.cp), low),
            take("parts", (rows, (2 if low else 1) * widths[0]), torch.float16),
        )
        hidden = list(enumerate(sent.hidden))
        self.held = Layers(
            [_room(take, f"w{i}", (p, *weight.shape[1:]), low) for i, (weight, _) in hidden],
            [take(f"b{i}", (p, bias.shape[1])) for i, (_, bias) in hidden],
            _room(take, "w", (p, h, sent.cp), low),
            take("bias", (p, sent.cp)),
        )
        self.slopes = [take(f"m{i}", (p, *weight.shape[1:])) for i, (weight, _) in hidden]
        self.of_bias = [take(f"mb{i}", (p, bias.shape[1])) for i, (_, bias) in hidden]
        self.moved = take("moved", (p, h + 1, sent.cp))
        self.grad = take("grad", (len(turns.tiles.client), h + 1, sent.cp))

    def __call__(self, layers: Layers, whose: Tensor, *, first: bool, last: bool) -> None:
        """One step, of clients whose models are those of some layers."""
        self._outputs(layers, whose, first=first, last=last)
        for i in range(len(layers.hidden) - 1, -1, -1):
            self._between(i, layers, whose, add=i == 0 and not first, last=i == 0 and last)
            self._slopes(i, first=first)
        self._update(first=first)

    def _outputs(self, layers: Layers, whose: Tensor, *, first: bool, last: bool) -> None:
        """dF/dlogits, and dF/dz of the last hidden layer."""
        forward, sent, only = self.forward, self.forward.sent, not layers.hidden
        turns, tiles, h, cp = forward.turns, forward.turns.tiles, forward.widths[-1], sent.cp
        _signal[(triton.cdiv(len(turns.y), 128),)](
            tiles.whose, tiles.size, forward.logits, layers.bias, whose, turns.y, *self.signal, self.ps,
            len(turns.y), cp, forward.pieces, 128, forward.low, num_warps=4,
        )  # fmt: skip
        block = min(BACKWARD["hidden"], forward.blocks[-1])
        _backward[(len(tiles.client) * triton.cdiv(h, block),)](
            tiles.client, tiles.first, tiles.size, tiles.start, *forward.r[-1], *self.d[-1], *layers.last,
            whose, self.began[-1], *self.signal, self.ps, self.grad, self.units[-1],
            *self._order(), h, cp, forward.wide, block, first or not only, last and only,
            forward.low, self.sums if only else forward.low, num_warps=BACKWARD["warps"], num_stages=1,
        )  # fmt: skip

    def _between(self, i: int, layers: Layers, whose: Tensor, *, add: bool, last: bool) -> None:
        """dF/dz of hidden layer i, from that of the next."""
        forward, tiles = self.forward, self.forward.turns.tiles
        inner, outer, block = forward.widths[i], forward.widths[i + 1], forward.blocks[i]
        _layer_backward[(len(tiles.client) * triton.cdiv(inner, block),)](
            tiles.client, tiles.first, tiles.size, tiles.start, *self.d[i + 1], self.units[i + 1],
            *layers.hidden[i], whose, self.began[i + 1], *forward.r[i], *self.d[i],
            self.units[i], *self._order(), inner, outer, forward.wide, block, LAYER["deep"], LAYER["stages"],
            add, last, forward.low, self.sums if i == 0 else forward.low,
            num_warps=LAYER["warps"], num_stages=1, maxnreg=LAYER["registers"],
        )  # fmt: skip

    def _slopes(self, i: int, *, first: bool) -> None:
        """The layer between hidden layers i and i + 1 takes a step."""
        forward, sent, tiles = self.forward, self.forward.sent, self.forward.turns.tiles
        inner, outer = forward.widths[i], forward.widths[i + 1]
        outs, ins = (
            min(SLOPE[side], max(16, triton.next_power_of_2(n)))
            for side, n in (("out", outer), ("in", inner))
        )
        _slope[(len(tiles.size), triton.cdiv(outer, outs), triton.cdiv(inner, ins))](
            tiles.size, tiles.start, *self.d[i + 1], self.units[i + 1], *forward.r[i], self.slopes[i],
            self.of_bias[i], *sent.hidden[i], self.judged.identity, *self.held.hidden[i],
            self.held.biases[i], self.began[i + 1], self.gamma, inner, outer, outs, ins, SLOPE["deep"],
            SLOPE["stages"], first, self.forward.low, num_warps=SLOPE["warps"], num_stages=1,
        )  # fmt: skip

    def _update(self, *, first: bool) -> None:
        """The last layer takes a step."""
        sent, tiles, h = self.forward.sent, self.forward.turns.tiles, self.forward.widths[-1]
        block = min(1024, triton.next_power_of_2((h + 1) * sent.cp))
        _update[(len(tiles.size), triton.cdiv((h + 1) * sent.cp, block))](
            self.grad, tiles.tile, tiles.size, self.moved, sent.whole, self.judged.identity, *self.held.last,
            self.held.bias, self.began[-1], self.gamma, h, sent.cp, ROWS, block, first, self.forward.low,
            num_warps=4,
        )  # fmt: skip

    def _order(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Where S, weighted, goes after the last step."""
        return self.parts, self.judged.to, self.forward.turns.a, self.of_sum


def _room(take, name: str, shape: tuple[int, ...], low: bool) -> Halves:
    """Memory for two fp16 parts, or for one."""
    high = take(f"{name}h", shape, torch.float16)
    return high, take(f"{name}l", shape, torch.float16) if low else high
