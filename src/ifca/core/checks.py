"""What the server holds replies against before it uses them. A reply that fails counts as none.

Two principles, both relative to what the others of the round say, so that no unit, step or model matters:

1. No client changes a model by more than TOO_LONG times what is usual among the others.
2. No client's word about losses weighs more than the words of the others allow: what lies beyond their range
   by more than BEYOND times its width is taken to that limit. Honest words stay as they are.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.identity import identity
from ifca.core.recipe import Recipe
from ifca.core.replies import Rejection, Savings, Solutions, Updates
from ifca.core.types import Params

TOO_LONG = 10.0  # times the median length of the cohort's changes; honest ones were seen at up to 2.5
BEHIND = 3.0  # times as far goes at most who loses more than the median: a new model has far to go
SMALL = 1e-3  # of a model's length: when nearly nobody changes it any more, such changes are still usual
FEWEST = 3  # clients from which on the others can say what is usual
MANY, BEYOND = 8, 3.0  # clients from which on there is a range of words; its widths
ROUNDING = 1e-4  # share of a loss by which two losses that are the same may differ


def change_lengths(models: bool, step: float, theta: Params, updates: Updates, own: Tensor) -> Tensor:
    """|theta~_i - theta_j| of each client [p], where updates are models, or step |g_i|. own: [p] each j."""
    names, squares = frozenset(theta), torch.zeros(len(own), dtype=torch.float64)
    for part, values in zip(updates.layout(names), updates.blocks(names), strict=True):
        sent = (
            theta[part.name]
            .reshape(len(theta[part.name]), -1)[:, part.start : part.start + part.width]
            .double()
        )
        moved = values - sent[own.to(sent.device)] if models else step * values.double()
        squares += moved.square().sum(1).cpu()
    return squares.sqrt()


def usual_lengths(length: Tensor, own: Tensor, theta: Params, steps: Tensor) -> Tensor:
    """What each client's change is held against [p]: the (lower) median over all, or over its cluster where
    that has FEWEST members and is larger, or SMALL times the length of the model, where that is.

    steps: [p] that each takes in its turn. Who takes more than the median may go so much farther.
    """
    models = torch.stack(
        [value.double().reshape(len(value), -1).norm(dim=1) for value in theta.values()]
    ).norm(dim=0)
    usual: Tensor = (SMALL * models.cpu()[own]).maximum(length.median())
    for j in set(own.tolist()):
        mine = own == j
        if int(mine.sum()) >= FEWEST:
            usual[mine] = usual[mine].maximum(length[mine].median())
    more = capped_weights(steps.double(), torch.zeros_like(own)) / steps.double().median()
    return usual * more.clamp(min=1)


def behind(loss: Tensor) -> Tensor:
    """How many times as far as usual clients of these losses [p] may go: [p], in [1, BEHIND].

    It is how far a loss is above the lowest, over how far the median is. Nobody's own word counts beyond the
    largest of the others', and neither a constant on all losses nor their unit matters.
    """
    if len(loss) < FEWEST:
        return torch.ones_like(loss)
    order = loss.sort().values
    above = loss.where(loss < order[-1], order[-2]) - order[0]
    share = above / (loss.median() - order[0])
    return share.nan_to_num(1.0, posinf=BEHIND).clamp(1.0, BEHIND)


def local_steps(recipe: Recipe, sizes: NDArray[np.int64]) -> Tensor:
    """Gradient steps that clients of these sizes take in a turn: [p]."""
    if recipe.local_epochs is None or recipe.batch_size is None:
        return torch.ones(len(sizes), dtype=torch.long)
    return recipe.local_epochs * torch.from_numpy(-(-sizes // recipe.batch_size))


def unusable(
    theta: Params, length: Tensor, own: Tensor, losses: Tensor, judged: Tensor, steps: Tensor
) -> list[Rejection]:
    """Which of p replies are not used, and why.

    length: [p] of their changes; own: [p] the clusters that they claim; losses: [p, k], NaN: not judged;
    judged: [p] who chose among several models; steps: [p] local steps.
    """
    found, claimed = [], losses.gather(1, own[:, None])[:, 0].double()
    usual, there = torch.zeros_like(length), length.isfinite() & claimed.isfinite()
    if bool(there.any()):
        usual[there] = usual_lengths(length[there], own[there], theta, steps[there])
        usual[there] *= behind(claimed[there])
    least = losses.double().gather(1, identity(losses)[:, None])[:, 0]
    for row, (size, most) in enumerate(zip(length.tolist(), usual.tolist(), strict=True)):
        loss, low, j = float(claimed[row]), float(least[row]), int(own[row])
        if not bool(length[row].isfinite()) or not bool(claimed[row].isfinite()):
            found.append(Rejection(row, "not-finite", f"a change of length {size}, a loss of {loss}", j))
        elif bool(judged[row]) and loss - low > ROUNDING * abs(loss):
            said = f"it claims the cluster with a loss of {loss:.6g}, and says that another has {low:.6g}"
            found.append(Rejection(row, "contradicts-losses", said, j))
        elif int(there.sum()) >= FEWEST and size > TOO_LONG * most > 0:
            said = f"its change has length {size:.3g}, {size / most:.3g} times the cohort's {most:.3g}"
            found.append(Rejection(row, "too-large", said, j))
    return found


def capped_weights(weight: Tensor, own: Tensor) -> Tensor:
    """What clients weigh in averages [p]: nobody more than all others of its cluster together, so that no
    number of samples that is only told makes a client the majority. Clusters of two stay as they are.
    """
    capped = weight.clone()
    for j in set(own.tolist()):
        mine = (own == j).to(weight.device)
        if int(mine.sum()) >= FEWEST:
            all_of_it, each = weight[mine].double().sum(), weight[mine].double()
            capped[mine] = each.minimum(all_of_it - each).to(weight.dtype)
    return capped


def within_others(values: Tensor) -> Tensor:
    """What p clients say [p, ...], each word within BEYOND widths of the range of the others' [p, ...].

    Words that are no numbers stay, and are nobody's range.
    """
    if len(values) < MANY:
        return values
    there = values.isfinite()
    up, down = (values.where(there, end).sort(0).values for end in (-torch.inf, torch.inf))
    enough = there.sum(0) >= MANY
    low, second_low, second, high = down[0], down[1], up[-2], up[-1]
    # The range of the others leaves the client's own word out: it matters only for the two outermost.
    above = second + BEYOND * (second - low)
    below = second_low - BEYOND * (high - second_low)
    taken = torch.where(values > above, above, torch.where(values < below, below, values))
    return torch.where(there & enough, taken, values)


def capped_savings(found: Savings) -> Savings:
    """A comparison in which no client says more of a sample than the others allow, nor has more samples than
    all others together. found: sums over samples, of p clients.
    """
    told = found.samples > 0
    count = found.samples[told].double()
    if len(count) < MANY:
        return found
    weight = capped_weights(count, torch.zeros(len(count), dtype=torch.long))
    mean, root = found.total[told] / count[:, None], (found.square[told] / count[:, None]).sqrt()
    fine, spread = within_others(mean), within_others(root)
    if torch.equal(weight, count) and torch.equal(fine, mean) and torch.equal(spread, root):
        return found
    total, square, samples = found.total.clone(), found.square.clone(), found.samples.clone()
    least = spread.maximum(fine.abs())  # no differences have a smaller root mean square than their mean
    total[told], square[told] = weight[:, None] * fine, weight[:, None] * least.square()
    samples[told] = weight.long()
    return found._replace(samples=samples, total=total, square=square)


def without_far(found: Solutions) -> Solutions:
    """The solutions of the probe without those that are far longer than the others'."""
    answered, (points,) = found.answered.clone(), found.theta.values()
    answered[torch.nonzero(answered)[far_solutions(points[answered]), 0]] = False
    return found._replace(answered=answered)


def far_solutions(points: Tensor) -> list[int]:
    """The rows of solutions of the probe [p, d] that are TOO_LONG times as long as is usual."""
    length = points.double().flatten(1).norm(dim=1)
    usual = float(length.median())
    if len(length) < FEWEST or usual == 0:
        return []
    return torch.nonzero(length > TOO_LONG * usual)[:, 0].tolist()
