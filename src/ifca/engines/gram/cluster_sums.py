"""What a chunk of clients adds to the sums of its clusters, and tells of itself in a few numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from ifca.core.averages import fold
from ifca.core.sketch import Sketch
from ifca.core.types import ClusterSum, FirstLayer, Params
from ifca.engines.gram.first_layers import Turn
from ifca.engines.gram.gram_steps import Scratch
from ifca.engines.gram.judge import neighbours


class ClusterSums:
    """Sums over i of s_ij w_i update_i; a cluster's first layers are ONE product over its members."""

    def __init__(self, first: FirstLayer, scratch: Scratch, *, weighs: bool) -> None:
        self.first, self._scratch, self._weighs = first, scratch, weighs

    def add(self, total: ClusterSum, theta: Params, turn: Turn, weight: Tensor) -> None:
        """The turns of some clients. weight: [b]."""
        j, data, s = turn.identity, turn.data, turn.s
        fold(total, j, turn.rest, weight)
        if self._weighs:
            s = s * weight[:, None, None]
        for cluster in torch.unique(j).tolist():
            mine = torch.nonzero(j == cluster)[:, 0]
            x_j, s_j = (
                (data.x, s)
                if len(mine) == len(j)
                else (self._some("x_j", data.x, mine), self._some("s_j", s, mine))
            )
            slopes = {self.first.weight: (s_j.flatten(0, 1).t() @ x_j.flatten(0, 1)) * data.scale}
            if self.first.bias is not None:
                slopes[self.first.bias] = s_j.sum((0, 1))
            for name, slope in slopes.items():
                if turn.step is not None:  # W_i = W_j - gamma S_i'X_i, summed over the members
                    total.total[name][cluster] += weight[mine].sum().double() * theta[name][cluster]
                    slope = -turn.step * slope
                total.total[name][cluster] += slope

    def add_alone(self, total: ClusterSum, theta: Params, turn: Turn) -> None:
        """The same where every client has a model of its own: what is summed is its update."""
        j, s, x, step = turn.identity, turn.s, turn.data.x, turn.step
        total.weight[j] = 1
        for name, value in turn.rest.items():
            total.total[name][j] = value
        if self.first.bias is not None:
            moved = s.sum(1)
            at = theta[self.first.bias][j]
            total.total[self.first.bias][j] = moved if step is None else at - step * moved
        weight, place = self.first.weight, neighbours(j)
        whole, sent = total.total[weight], theta[weight][place]
        near = isinstance(place, slice)  # then it is formed where it is to be
        out = whole[place] if near else self._scratch.take("formed", sent.shape, sent)
        beta, alpha = (0.0, turn.data.scale) if step is None else (1.0, -step * turn.data.scale)
        torch.baddbmm(sent, s.transpose(1, 2), x, beta=beta, alpha=alpha, out=out)
        if not near:
            whole[place] = out

    def drawn(self, sketch: Sketch, theta: Params, turn: Turn) -> Tensor:
        """Each client's update in a few numbers, its first layer never formed: [b, q]."""
        data, s, step = turn.data, turn.s, turn.step
        moved = {n: v if step is None else v - theta[n][turn.identity] for n, v in turn.rest.items()}
        first = sketch.outer(self.first.weight, s, data.x) * data.scale
        if self.first.bias is not None:
            first = first + sketch.part(self.first.bias, s.sum(1))
        first = first if step is None else -step * first
        return first + sketch.of(moved) if moved else first

    def _some(self, name: str, values: Tensor, which: Tensor) -> Tensor:
        """Some clients of a chunk, in memory that is used again."""
        out = self._scratch.take(name, (len(which), *values.shape[1:]), values)
        return torch.index_select(values, 0, which, out=out)
