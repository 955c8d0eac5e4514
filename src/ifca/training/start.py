"""What a method is given to begin with: initial models, local solutions, a way to ask clients."""

from __future__ import annotations

import torch
from torch import Tensor

from ifca.core.checks import capped_savings, without_far
from ifca.core.errors import Diverged, InvalidInput
from ifca.core.initial import assert_distinct, random_models, warm_start, with_shared_of
from ifca.core.ledger import Wire
from ifca.core.random import bits
from ifca.core.replies import Savings, Solutions
from ifca.core.types import ClusterState, Params, everywhere, model_count
from ifca.engines.base import Engine
from ifca.methods import Problem
from ifca.methods.founding import points_of
from ifca.training.checked import is_checked
from ifca.training.job import Clusterer, Job
from ifca.training.rounds import train


def problem_of(job: Job, engine: Engine | None = None) -> Problem:
    """The job as its method sees it; engine: the one that trains it, where clients can be asked to judge."""
    clients = job.federation.train

    def judge(theta: Params, who: Tensor) -> Tensor:
        return asked().score(theta, clients.subset(who.numpy())).loss

    def asked() -> Engine:
        return engine or job.make_engine()

    def solve() -> Solutions:
        found = asked().solve()
        return without_far(found) if job.recipe.check_updates else found

    def compare(theta: Params, who: Tensor, own: Tensor, others: Tensor) -> Savings:
        said = asked().compare(theta, who, own, others, probes=True)
        return capped_savings(said) if is_checked(job.recipe, engine) else said

    return Problem(
        recipe=job.recipe,
        keys=clients.keys,
        shared=job.shared,
        models=job.models,
        draw=lambda restart, redraw: drawn_models(job, restart, redraw),
        given=given_models(job),
        judge=None if engine is None or engine.name == "flower" else judge,
        local_solutions=lambda restart: local_solutions(job, restart),
        solve=solve,
        compare=compare,
        checked=is_checked(job.recipe, engine),
        cluster=lambda solutions: clusters_of(job, solutions),
    )


def start(job: Job, restart: int = 0, engine: Engine | None = None) -> ClusterState:
    """The state before round 0."""
    return job.method.start(problem_of(job, engine), restart)


def drawn_models(job: Job, restart: int, redraw: int = 0) -> Params:
    """As many different models as there are places; one where all begin alike.

    Where the warm start is one model and some layers are shared, these are its own.
    """
    count = 1 if job.method.one_start else job.models
    theta = random_models(job.draw, count, job.recipe.seed, restart, job.shared, redraw)
    if job.warm_start is not None and given_models(job) is None:
        theta = with_shared_of(job.warm_start, theta, job.shared)
    assert_distinct(theta)
    return {name: value.to(job.device) for name, value in theta.items()}


def given_models(job: Job) -> Params | None:
    """The models of the warm start; None: there are none, or only layers for all clusters."""
    if job.warm_start is None:
        return None
    if not job.warm_start or not model_count(job.warm_start):
        raise InvalidInput("warm_start: holds no model")
    count, have = 1 if job.method.one_start else job.models, model_count(job.warm_start)
    if have == 1 and count > 1 and job.shared:
        return None
    if have != count and job.method.one_start and job.method.clustered:
        raise InvalidInput(f"warm_start: {job.method.name} begins with one model, got {have}")
    if have != count and not (job.method.at_most_k and have < count):
        raise InvalidInput(
            f"the warm start holds {have} model(s) but k is {count}: "
            "give k models, or one model and shared layers"
        )
    like = random_models(job.draw, 1, job.recipe.seed, 0, job.shared)
    theta = warm_start(job.warm_start, like, job.shared)
    assert_distinct(theta)
    return {name: value.to(job.device) for name, value in theta.items()}


def local_solutions(job: Job, restart: int) -> tuple[Params, Tensor, Tensor]:
    """Line 1 of Algorithm 1: every client's own solution [m, ...]; the bytes that each was sent and sent."""
    alone = job.local_solutions()
    engine = alone.make_engine()
    problem, clients = problem_of(alone, engine), job.federation.train
    first = alone.method.start(problem, restart)
    advice = f"one-shot clustering: set erm_step_size to less than {alone.recipe.step_size}"
    try:
        state = train(alone, problem, engine, first, lambda _state, _record: None)
    except Diverged as reason:
        raise Diverged(f"{advice} ({reason})") from reason
    before = float(engine.score(first.theta, clients, first.identity).loss.mean())
    after = float(engine.score(state.theta, clients, state.identity).loss.mean())
    if not after <= before:
        raise Diverged(
            f"{advice} (local training took the clients' mean loss from {before:.3g} to {after:.3g})"
        )
    if bool(state.bytes_up.any()):  # measured
        return state.theta, state.bytes_down, state.bytes_up
    sent = Wire.of(state.theta, everywhere(state.theta), frozenset()).clustered
    return state.theta, state.bytes_down, state.bytes_up + sent


def clusters_of(job: Job, solutions: Params) -> Tensor:
    """Line 2 of Algorithm 1: the clusters that the job's clusterer finds among models [m, ...]."""
    flat = torch.cat([value.flatten(1) for value in solutions.values()], dim=1).double()
    points = points_of(flat)[0] if job.clusterer is None else flat
    return torch.as_tensor(clusterer_of(job).fit_predict(points.cpu().numpy())).long()


def clusterer_of(job: Job) -> Clusterer:
    """The clusterer of one-shot clustering: the one that was given, or k-means."""
    from sklearn.base import clone
    from sklearn.cluster import KMeans

    seed, given = int(bits(job.recipe.seed, "clusterer")[0] % (2**32)), job.clusterer
    if given is None:
        return KMeans(job.recipe.k, n_init=10, random_state=seed)  # type: ignore[no-any-return]
    if hasattr(given, "get_params"):
        return clone(given)  # type: ignore[no-any-return]
    return given if hasattr(given, "fit_predict") else given(job.recipe.k, seed)
