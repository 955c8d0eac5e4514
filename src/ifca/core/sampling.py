"""Who takes part in a round (line 4) and which of its samples a participant uses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.buckets import groups
from ifca.core.errors import InvalidInput
from ifca.core.random import UInts, bits, shuffled
from ifca.core.recipe import Recipe
from ifca.core.types import Data

Ints = NDArray[np.int64]


class Plan(NamedTuple):
    """The rows that clients use in a round; -1 is padding. None: all rows, in every step."""

    identity: Tensor | None  # [n'] rows to estimate the identity on
    steps: Tensor | None  # [steps, batch] rows of each gradient step
    draws: Tensor | None = None  # [steps, batch] random whole numbers: to augment these rows by, for dropout


def participants(recipe: Recipe, t: int, keys: UInts, secret: int | None = None) -> Tensor:
    """M_t: a random subset of the clients, in rising order. keys: [m], one per client.

    With differential privacy each client is drawn by itself (Poisson sampling). Where that is nobody, the
    client that was nearest to it has a turn, whose loss is reported and which counts for nothing (is_empty).
    secret: in place of the recipe's seed.
    """
    m = len(keys)
    size = max(1, round(recipe.participation * m))
    if recipe.participation == 1 or (size == m and not recipe.private):
        return torch.arange(m)
    draw = bits(recipe.seed if secret is None else secret, "participants", t, keys)
    if recipe.private:
        size = max(1, int(_below(recipe, draw).sum()))
    return torch.from_numpy(np.sort(np.argsort(draw, kind="stable")[:size]).astype(np.int64))


def is_empty(recipe: Recipe, t: int, keys: UInts, secret: int | None = None) -> bool:
    """Whether a private round drew nobody."""
    if recipe.participation == 1:
        return False
    return not _below(recipe, bits(recipe.seed if secret is None else secret, "participants", t, keys)).any()


def _below(recipe: Recipe, draw: UInts) -> NDArray[np.bool_]:
    """Which of 64-bit draws are below the participation."""
    return draw < np.uint64(int(recipe.participation * 2**64))


def is_lost(recipe: Recipe, t: int, keys: UInts) -> NDArray[np.bool_]:
    """Whose reply of round t never comes: [p]. Where that is everybody's, one comes."""
    draw = bits(recipe.seed, "lost-replies", t + 1, keys)  # before the first round t is -1
    lost = draw < np.uint64(int(recipe.lost_replies * 2**64))
    lost[draw.argmax()] = False
    return lost


ASIDE = 5  # one sample in so many is set aside
SPARE, AT_ONCE = 2**12, 2**20  # rows of padding, and of clients shuffled together


def is_aside(seed: int, keys: UInts, sizes: Ints) -> NDArray[np.bool_]:
    """Which samples wait while models are compared: [rows], of all clients, one after the other."""
    return drawn_rows(seed, "set-aside", keys, sizes, count_aside(sizes))


def drawn_rows(seed: int, purpose: str, keys: UInts, sizes: Ints, count: Ints) -> NDArray[np.bool_]:
    """So many samples of each client, at random: [rows], of all clients, one after the other."""
    start, drawn = np.cumsum(sizes) - sizes, np.zeros(int(sizes.sum()), np.bool_)
    for some in groups(sizes, SPARE, AT_ONCE):
        order = shuffled(seed, purpose, sizes[some], keys[some])  # [c, longest]
        first = np.arange(order.shape[1]) < count[some][:, None]
        drawn[(start[some][:, None] + order)[first]] = True
    return drawn


def count_aside(sizes: Ints) -> Ints:
    """How many samples clients of these sizes set aside; of one sample none: [m]."""
    return np.where(sizes > 1, np.maximum(1, sizes // ASIDE), 0)


def make_plan(recipe: Recipe, t: int, keys: UInts, sizes: Ints, draws: bool = False) -> Plan:
    """The plans of some clients, stacked: [c, n'] and [c, steps, batch]. keys, sizes: [c].

    draws: the task needs random numbers (Task.draws).
    """
    plan = _rows(recipe, t, keys, sizes)
    if not draws and not recipe.augment:
        return plan
    return plan._replace(draws=_draws(recipe, t, keys, sizes, plan.steps))


def on(plan: Plan, device: torch.device) -> Plan:
    """The same plan on a device."""
    return Plan(*(None if part is None else part.to(device) for part in plan))


def _rows(recipe: Recipe, t: int, keys: UInts, sizes: Ints) -> Plan:
    if recipe.resample:
        return _resampled(recipe, t, keys, sizes)
    if recipe.batch_size is None:
        return Plan(None, None)
    if recipe.option == "model" and recipe.local_epochs is not None:
        return Plan(None, _epochs(recipe, t, keys, sizes, recipe.local_epochs, recipe.batch_size))
    steps = recipe.local_steps if recipe.option == "model" else 1
    which = np.arange(steps, dtype=np.uint64)[None, :]
    order = shuffled(recipe.seed, "batches", sizes[:, None], t, keys[:, None], which)  # [c, steps, n]
    return Plan(None, torch.from_numpy(order[:, :, : recipe.batch_size].copy()))


def take(data: Data, rows: Tensor) -> Data:
    """The given rows of one client's data; row -1 becomes a copy of row 0 that weighs nothing."""
    row = rows.clamp(min=0)
    return Data(data.x[row], data.y[row], data.weight[row] * (rows >= 0))


def _epochs(recipe: Recipe, t: int, keys: UInts, sizes: Ints, epochs: int, batch: int) -> Tensor:
    """Each epoch is a fresh order of the client's samples, cut into batches (the last may be short)."""
    which = np.arange(epochs, dtype=np.uint64)[None, :]
    order = shuffled(recipe.seed, "batches", sizes[:, None], t, keys[:, None], which)  # [c, epochs, n]
    batch = min(batch, order.shape[-1])
    order = np.pad(order, [(0, 0), (0, 0), (0, -order.shape[-1] % batch)], constant_values=-1)
    return torch.from_numpy(order.reshape(len(keys), -1, batch))


def _draws(recipe: Recipe, t: int, keys: UInts, sizes: Ints, steps: Tensor | None) -> Tensor:
    """63 random bits for each sample of each step (or epoch): [c, steps, batch]."""
    if steps is None:
        count = recipe.local_steps if recipe.option == "model" else 1
        rows = np.broadcast_to(np.arange(sizes.max()), (len(keys), count, int(sizes.max())))
    else:
        rows = steps.clamp(min=0).numpy()
    which = np.arange(rows.shape[1])
    if recipe.option == "model" and recipe.local_epochs is not None:
        which = which * recipe.local_epochs // rows.shape[1]  # a sample is used once in an epoch
    place = (keys[:, None, None], which.astype(np.uint64)[:, None], rows.astype(np.uint64))
    return torch.from_numpy((bits(recipe.seed, "augment", t, *place) >> np.uint64(1)).astype(np.int64))


def _resampled(recipe: Recipe, t: int, keys: UInts, sizes: Ints) -> Plan:
    """Z-hat^(t) for the identity and Z^(t) for the gradient: parts t and T + t of 2T disjoint parts."""
    part = sizes // (2 * recipe.rounds)  # n' of each client
    if part.min() < 1:
        raise InvalidInput(
            f"resample cuts the data that each client trains on into 2 x rounds = {2 * recipe.rounds} parts, "
            f"but a client trains on only {sizes[part.argmin()]} samples, not counting those it has set aside"
        )
    order = shuffled(recipe.seed, "resample", sizes, keys)  # [c, n]
    position = np.arange(part.max())[None, :]
    present = position < part[:, None]

    def rows(index: int) -> Ints:
        start = index * part[:, None] + position
        return np.where(present, np.take_along_axis(order, np.minimum(start, order.shape[1] - 1), 1), -1)

    steps = recipe.local_steps if recipe.option == "model" else 1
    update = np.repeat(rows(recipe.rounds + t)[:, None, :], steps, axis=1)
    return Plan(torch.from_numpy(rows(t)), torch.from_numpy(update))
