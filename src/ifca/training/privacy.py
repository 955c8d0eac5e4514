"""Differential privacy of a job: its noise, the rounds its budget allows, what is refused and reported."""

from __future__ import annotations

import hashlib
import math
from dataclasses import fields, replace
from typing import Any

import torch

from ifca.core.averages import zero_sum
from ifca.core.errors import InvalidInput
from ifca.core.privacy_settings import Spent
from ifca.core.recipe import Recipe
from ifca.core.replies import Replies
from ifca.core.sampling import is_empty
from ifca.core.types import ClusterState
from ifca.data import Clients
from ifca.methods.accountant import accountant, epsilon, noise_for, rounds_within
from ifca.methods.private_sum import Noise, noised
from ifca.training.job import Job

PUBLIC = "the number of clients and of their samples, the names of features and classes count as public"
SEEN = (
    "what the server sees, and this folder with it: single changes, losses, clusters, sizes and test results "
    "are as the clients sent them"
)
OTHERS = "other trainings with the same clients: their epsilons add up"
ROUNDING = "what the rounding of floating-point numbers may tell about the noise"
SEEDED = (
    "anybody who knows or guesses the seed: the noise and who took part follow from it, so this is a "
    "simulation of privacy; 'ifca federate server' draws both from the operating system"
)
BEGUN = "the models that training began with"
APART = ("rounds", "evaluate_every", "dp_epsilon")  # settings that change no release, but how many there are


def noise_of(job: Job) -> Noise:
    """The noise that was given, or that all rounds together need to stay within the budget."""
    recipe = job.recipe
    multiplier = recipe.dp_noise
    if multiplier is None:
        assert recipe.dp_epsilon is not None
        multiplier = noise_for(recipe.dp_epsilon, recipe.participation, recipe.rounds, recipe.dp_delta)
    return Noise(multiplier, recipe.dp_clip)


def most_rounds(job: Job) -> int:
    """How many rounds are trained at most: those that were asked for, or those that the budget allows."""
    recipe = job.recipe
    if recipe.dp_noise is None or recipe.dp_epsilon is None:
        return recipe.rounds
    given = recipe.dp_epsilon, recipe.dp_noise, recipe.participation, recipe.dp_delta
    return rounds_within(*given, recipe.rounds)


def out_of_budget(job: Job, state: ClusterState) -> ClusterState:
    """The state after a round; where the budget allows no other, with that as the reason to stop."""
    if state.round < most_rounds(job) or state.round >= job.recipe.rounds:
        return state
    why = f"another round would spend more than dp_epsilon = {job.recipe.dp_epsilon:g}"
    return replace(state, progress=replace(state.progress, stopped=why))


def drawn_from(job: Job) -> int | None:
    """What noise and participants follow from: the secret, or the seed; None: the job is not private.

    No two trainings draw the same noise: the difference of their releases would have none. So with the seed
    the settings count, the models that training began with and, where it continues a run, the data. (With
    the secret the sums do; here they may not, because engines agree on them to rounding alone.)
    """
    if not job.recipe.private or job.secret is not None:
        return job.secret
    given = {
        field.name: getattr(job.recipe, field.name)
        for field in fields(job.recipe)
        if field.name not in APART and getattr(job.recipe, field.name) != field.default
    }
    digest = hashlib.blake2b(digest_size=8)
    digest.update(repr((sorted(given.items()), noise_of(job), job.other_data)).encode())
    for name, value in sorted((job.warm_start or {}).items()):
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "little")


def known_by(clients: Clients) -> int:
    """A number of clients' data, another one for others."""
    digest = hashlib.blake2b(repr(clients.ids).encode(), digest_size=8)
    for part in (clients.x, clients.y, torch.from_numpy(clients.offsets)):
        digest.update(part.detach().cpu().contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "little")


def private_replies(job: Job, state: ClusterState, replies: Replies) -> Replies:
    """The replies with noise on sums and counts; single losses are not for the method."""
    sums, seed = replies.total, drawn_from(job)
    if is_empty(job.recipe, state.round, job.federation.train.keys, seed):
        sums = zero_sum(state.theta)
    total = noised(job.recipe, noise_of(job), state, sums, job.shared, job.secret, seed)
    return replies._replace(total=total, losses=None)


def refuse_search(recipe: Recipe) -> None:
    """Refuse to compare many trainings by their losses: no epsilon covers what is chosen."""
    if recipe.private:
        raise InvalidInput(
            "dp_epsilon and dp_noise are for one training: to compare several, use data that need no privacy "
            "and leave both out"
        )


def check_private(job: Job) -> None:
    """Refuse, before anything is trained, what epsilon would not cover or what noise would drown."""
    recipe, m = job.recipe, len(job.federation.train)
    if job.federation.scaling is not None or job.federation.target_scaling is not None:
        raise InvalidInput(
            "data.standardise: means and variances of the clients' data are not covered by dp_epsilon: set "
            "data.standardise = false and data.standardise_target = false, and scale by numbers that are "
            "known without the data"
        )
    if job.federation.preparation is not None and not job.federation.preparation.plain:
        raise InvalidInput(
            "data: words and missing cells are prepared by what the clients' tables hold, which dp_epsilon "
            "does not cover: give columns of numbers only"
        )
    if recipe.dp_delta >= 1 / m:
        raise InvalidInput(
            f"dp_delta must be less than 1 over the number of clients ({m}), got {recipe.dp_delta:g}: "
            f"try {0.1 / m:.1g}"
        )
    if most_rounds(job) == 0:
        assert recipe.dp_noise is not None
        first = epsilon(recipe.dp_noise, recipe.participation, 1, recipe.dp_delta)
        raise InvalidInput(
            f"dp_noise = {recipe.dp_noise:g} spends epsilon = {first:.3g} in the first round, more than "
            f"dp_epsilon = {recipe.dp_epsilon:g}: take more noise"
        )
    _check_crowd(job, m)


def _check_crowd(job: Job, m: int) -> None:
    """Refuse a federation that is too small for its noise."""
    recipe, noise = job.recipe, noise_of(job)
    expected = recipe.participation * m
    if expected < noise.least:
        raise InvalidInput(
            f"the noise (multiplier {noise.multiplier:.3g}) needs at least {math.ceil(noise.least)} clients "
            f"of a cluster in a round, but a round has about {expected:.0f} of all: take more clients or a "
            "larger participation, fewer rounds, or a larger dp_epsilon"
        )


def privacy_facts(job: Job, state: ClusterState) -> dict[str, Any] | None:
    """What was spent, how, and what it does not cover: a part of summary.json; None: there is no privacy."""
    recipe = job.recipe
    if not recipe.private:
        return None
    noise, q = noise_of(job), recipe.participation
    secret, begun = job.secret is not None, job.warm_start is not None and job.spent is None
    now = Spent(epsilon(noise.multiplier, q, state.round, recipe.dp_delta), recipe.dp_delta)
    return {
        "epsilon": now.epsilon,
        "delta": recipe.dp_delta,
        "budget": recipe.dp_epsilon,
        "adjacency": "one client more or less",
        "sampling": "all clients in every round" if q == 1 else "each client by itself (Poisson)",
        "participation": q,
        "rounds": state.round,
        "noise": noise.multiplier,
        "clip": noise.clip,
        "noise_of_sums": noise.of_sums,
        "noise_of_counts": noise.of_counts,
        "least_count": noise.least,
        "accountant": accountant(q),
        "noise_from": "the operating system" if secret else "the seed",
        "covered": "the models after every round",
        "not_covered": [
            SEEN,
            *([] if secret else [SEEDED]),
            *([BEGUN] if begun else []),
            OTHERS,
            PUBLIC,
            ROUNDING,
        ],
        **({} if job.spent is None else _added_up(job.spent, now)),
    }


def _added_up(before: Spent, now: Spent) -> dict[str, Any]:
    """What is promised of a client that was in this training and in those before (basic composition)."""
    both = Spent(before.epsilon + now.epsilon, before.delta + now.delta)
    return {"before": before._asdict(), "in_all": both._asdict()}
