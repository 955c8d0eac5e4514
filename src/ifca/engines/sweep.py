"""Many runs of IFCA on linear regression at once, as columns over one shared X.

A trial of the paper draws X once; all R, sigma, initialisations and step sizes of it are separate runs of
gradient averaging on the same X. Stacked as columns, a round of all of them is two matrix products.

After a dozen rounds most clients stay with those of their own theta*, and little remains to be done:

- The root of a client's loss changes by at most ||X_i|| ||change of theta||. So a client keeps its choice as
  long as the models have moved less than its choice was clear (`_slack`), and is not asked until then.
- The gradient of a group of clients with one model needs the group's X'X and X'y only, which all runs share.
  Members with another model are put right one by one.

Both are exact: the result is that of asking everybody in every round, but for rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ifca.core import identity as core

CHUNK_BYTES = 2**27  # residuals of some runs
DIVERGED = 1e6  # a norm from which no run comes back; it ends there


def sweep(
    x: Tensor, y: Tensor, theta: Tensor, step: Tensor, rounds: int, group: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Option I with all clients in every round, for every run.

    x: [m, n, d]; y: [runs, m, n] targets of each run; theta: [runs, k, d] initial models; step: [runs];
    group: [m], which clients are likely to choose alike (it decides the time, not the result).
    Returns the models [runs, k, d], NaN where a run diverged, and the last identities [runs, m].
    """
    m, n, _ = x.shape
    runs, k, _ = theta.shape
    if y.shape != (runs, m, n):
        raise ValueError(f"y must be [runs, m, n] = {(runs, m, n)}, got {tuple(y.shape)}")
    group = torch.zeros(m, dtype=torch.long, device=x.device) if group is None else group
    sums = _Sums(x, y, group)
    norm = torch.linalg.eigvalsh(x @ x.mT)[:, -1].sqrt()  # ||X_i||
    size = max(1, CHUNK_BYTES // (m * n * k * x.element_size()))
    scale = (2 * step / (n * m))[:, None, None]  # gradient of the mean square, averaged over m clients
    theta = theta.clone()
    identity = torch.zeros(runs, m, dtype=torch.long, device=x.device)
    way = theta.new_zeros(runs)  # that the models have moved so far
    until = theta.new_zeros(runs, m)  # the way up to which a client need not be asked
    for _ in range(rounds):
        theta[~(theta.norm(dim=-1) < DIVERGED).all(-1)] = torch.nan
        going = theta.isfinite().flatten(1).all(1)
        # Leaders are those of the round before: whoever is not with them after this one is among the wanted.
        leader = _leaders(identity, group, k)
        wanted = (until <= way[:, None]) | (identity != leader[:, group])
        wanted &= going[:, None]
        slope = torch.zeros_like(theta)
        asked = wanted.any(1).nonzero()[:, 0]
        for some in (asked[start : start + size] for start in range(0, len(asked), size)):
            who = _most(wanted[some].any(0))
            mine = _rows(x, who)
            residual = _residuals(mine, y[some][:, who], theta[some])
            losses = residual.square().sum(-1)  # [some, k, who]
            at = (some[:, None], who)
            identity[at] = core.identity(losses.mT)
            until[at] = way[some][:, None] + _slack(losses, norm[who])
            slope[some] = _corrections(mine, residual, identity[at], leader[some][:, group[who]])
        sums.add_slopes(slope, theta, leader, going.nonzero()[:, 0])
        change = scale * slope
        theta -= change
        way += change.norm(dim=-1).amax(-1)
    return theta, identity


def _most(wanted: Tensor) -> Tensor:
    """Where that is so; everywhere if it is so for more than half: then copying costs more than it saves."""
    return (wanted | (2 * wanted.sum() > len(wanted))).nonzero()[:, 0]


def _rows(x: Tensor, who: Tensor) -> Tensor:
    return x if len(who) == len(x) else x[who]


def _residuals(x: Tensor, y: Tensor, theta: Tensor) -> Tensor:
    """Of every model on every sample: [runs, k, m, n]."""
    m, n, d = x.shape
    found = (theta.reshape(-1, d) @ x.reshape(m * n, d).t()).view(*theta.shape[:2], m, n)
    return found.sub_(y[:, None])


def _slack(losses: Tensor, norm: Tensor) -> Tensor:
    """[runs, m]: how far the models may move before a client can choose another one."""
    if losses.shape[1] == 1:
        return torch.full_like(losses[:, 0], torch.inf)
    best = losses.topk(2, dim=1, largest=False).values.sqrt()
    # Both models may move, so half of it; a little less for rounding.
    return 0.49 * (best[:, 1] - best[:, 0]) / norm


def _leaders(identity: Tensor, group: Tensor, k: int) -> Tensor:
    """The model that most clients of a group have: [runs, groups]."""
    members = one_hot(group).to(torch.float32)
    return torch.einsum("rik,ig->rgk", one_hot(identity, k).float(), members).argmax(-1)


def _corrections(x: Tensor, residual: Tensor, identity: Tensor, leader: Tensor) -> Tensor:
    """Residual times X [runs, k, d] of clients that left their group's model: what moves to theirs."""
    runs, k, _, n = residual.shape
    sign = (one_hot(identity, k) - one_hot(leader, k)).permute(0, 2, 1).to(residual.dtype)  # [runs, k, m]
    left = sign.any(1)
    some, who = _most(left.any(1)), _most(left.any(0))
    slope = x.new_zeros(runs, k, x.shape[-1])
    if len(who):
        signed = residual[some][:, :, who] * sign[some][:, :, who, None]
        rows = _rows(x, who).reshape(len(who) * n, -1)
        slope[some] = (signed.view(-1, len(rows)) @ rows).view(len(some), k, -1)
    return slope


class _Sums:
    """X'X and X'y of each group."""

    def __init__(self, x: Tensor, y: Tensor, group: Tensor) -> None:
        members = [group == g for g in range(int(group.max()) + 1)]
        rows = [x[who].flatten(0, 1) for who in members]
        self.left = [some.t() @ some for some in rows]
        self.right = [y[:, who].flatten(1) @ some for who, some in zip(members, rows, strict=True)]

    def add_slopes(self, slope: Tensor, theta: Tensor, leader: Tensor, runs: Tensor) -> None:
        """As if every group had its leader's model in these runs."""
        for g, (left, right) in enumerate(zip(self.left, self.right, strict=True)):
            where = (runs, leader[runs, g])
            slope.index_put_(where, theta[where] @ left - right[runs], accumulate=True)
