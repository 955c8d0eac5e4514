"""Judging models that begin with a linear layer: all k on a chunk of clients in one product."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vmap

from ifca.core.types import FirstLayer, Params, Task
from ifca.engines.gram.chunks import Chunk
from ifca.engines.gram.gram_steps import Scratch, dense_logits

Wide = tuple[Tensor, "Tensor | None", int]
"""Several first layers side by side: weights [d, k h], biases [k h], k."""


class Judge:
    """Lines 6 and 7 of Algorithm 2 for a chunk of clients."""

    def __init__(self, task: Task, first: FirstLayer, scratch: Scratch) -> None:
        self.task, self.first, self._scratch = task, first, scratch

    def side_by_side(self, theta: Params) -> Wide:
        """The first layers of several models as one: [d, k h], [k h], k."""
        weight = theta[self.first.weight]
        bias = None if self.first.bias is None else theta[self.first.bias].reshape(-1)
        return weight.flatten(0, 1).t(), bias, len(weight)  # a view: as a copy, few columns are slow

    def products(self, wide: Wide, data: Chunk) -> Tensor:
        """Z = X W' + b of several models in one product: [b, n, k, h]."""
        x, (weight, bias, k) = data.x.flatten(0, 1), wide
        out = self._scratch.take("z", (len(x), weight.shape[1]), weight)
        if bias is None:
            torch.mm(x, weight, out=out).mul_(data.scale)
        else:
            torch.addmm(bias, x, weight, alpha=data.scale, out=out)
        return out.view(*data.x.shape[:2], k, -1)

    def losses(self, theta: Params, z: Tensor, data: Chunk, *, count: bool) -> tuple[Tensor, Tensor]:
        """Z [k, b n, h] -> mean losses and numbers of right predictions [b, k]."""
        (b, n), y, rest = data.y.shape[:2], data.y.flatten(0, 1), self.rest(theta)
        if self.first.dense is not None and self.task.classifies:
            memory = self._scratch.take("a", (z.shape[1], z.shape[0], z.shape[2]), z).transpose(0, 1)
            logits, _ = dense_logits(self.first.dense, rest, z, memory)  # [k, classes, b n]
            loss = -torch.log_softmax(logits, 1).gather(1, y[None, None].expand(len(z), 1, -1))[:, 0]
            right = (logits.argmax(1) == y).to(loss.dtype) if count else loss
        else:
            models = [{name: value[j] for name, value in rest.items()} for j in range(len(z))]
            outputs = [self.first.rest(model, z[j]) for j, model in enumerate(models)]
            loss = torch.stack([self.task.loss(output, y) for output in outputs])
            marks = self.task.correct
            right = loss * torch.nan if marks is None else torch.stack([marks(out, y) for out in outputs])
        mean = (loss.view(-1, b, n) * data.weight).sum(2).t()
        return mean, (right.view(-1, b, n) * (data.weight > 0)).sum(2).t()

    def own(self, theta: Params, data: Chunk, j: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Each client under the one model it was sent: losses [b], right predictions [b], z [b, n, h]."""
        clusters = torch.unique(j).tolist()
        if len(clusters) == len(j):
            return self._each_its_own(theta, data, j)
        b, n, _ = data.x.shape
        z = self._scratch.take("own", (b, n, theta[self.first.weight].shape[1]), data.x)
        loss, correct = data.x.new_empty(b), data.x.new_empty(b)
        for cluster in clusters:
            mine = torch.nonzero(j == cluster)[:, 0]
            part = data if len(mine) == b else data.of(mine)
            model = {name: value[cluster : cluster + 1] for name, value in theta.items()}
            z_j = self.products(self.side_by_side(model), part)[:, :, 0]
            tables = self.losses(model, z_j.reshape(1, len(mine) * n, -1), part, count=True)
            z[mine], loss[mine], correct[mine] = z_j, tables[0][:, 0], tables[1][:, 0]
        return loss, correct, z

    def _each_its_own(self, theta: Params, data: Chunk, j: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same where no two clients have the same model: all products of a kind at once."""
        weight, y = theta[self.first.weight][neighbours(j)], data.y
        z = self._scratch.take("own", (*data.x.shape[:2], weight.shape[1]), data.x)
        torch.bmm(data.x, weight.transpose(1, 2), out=z).mul_(data.scale)
        if self.first.bias is not None:
            z.add_(theta[self.first.bias][j][:, None])
        rest = {name: value[j] for name, value in self.rest(theta).items()}
        if self.first.dense is not None and self.task.classifies:
            logits, _ = dense_logits(self.first.dense, rest, z, self._scratch.take("a", z.shape, z))
            loss = -torch.log_softmax(logits, 1).gather(1, y[:, None])[:, 0]  # [b, n]
            right = (logits.argmax(1) == y).to(loss.dtype)
        else:
            outputs, marks = vmap(self.first.rest)(rest, z), self.task.correct
            loss = vmap(self.task.loss)(outputs, y)
            right = loss * torch.nan if marks is None else vmap(marks)(outputs, y)
        return (loss * data.weight).sum(1), (right * (data.weight > 0)).sum(1), z

    def rest(self, theta: Params) -> Params:
        """The layers after the first."""
        return {name: v for name, v in theta.items() if name not in (self.first.weight, self.first.bias)}


def neighbours(j: Tensor) -> slice | Tensor:
    """The same numbers as a slice where they follow each other: what it takes is not copied."""
    near = len(j) == 1 or bool((j.diff() == 1).all())
    return slice(int(j[0]), int(j[-1]) + 1) if near else j
