"""IFCA with Newton steps inside each cluster: GIANT, for linear and logistic models.

In every round, after each participant has chosen its cluster j as in Algorithm 2,
1. members send their gradients; g_j is their mean                                 client, server
2. members are sent g_j, solve H_i p = g_j by conjugate gradients, send p_i        newton_direction
3. p_j is the mean of the p_i; members are sent it and say what they would lose
   at theta_j - eta p_j for eta = 0, 1, 1/2, ..., 2^-9                             line_values
4. theta_j <- theta_j - eta p_j, eta the largest that gains enough                 longest
These are three exchanges, and the ledger counts what each carries: a model down and one up in step 2, a model
down and 11 numbers up in step 3. (Flower's clients forget, so they are sent their model again; measured.)
With one client and as many steps of conjugate gradients as parameters this is Newton's method.

Source: GIANT of Wang, Roosta, Xu and Mahoney (2018), there for one model. Deviations: steps of conjugate
gradients are the recipe's local_steps; instead of the same small multiple of I for all, a client with fewer
than two samples per feature adds as much as its curvature, and others add nothing; where no eta gains enough
the model stays as it is; clients weigh the same unless the recipe says otherwise. H_i is of the whole local
objective, l2 included.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.func import grad

from ifca.core.client import estimate, gradient, objective
from ifca.core.errors import InvalidInput
from ifca.core.ledger import Wire
from ifca.core.recipe import Recipe
from ifca.core.replies import Replies
from ifca.core.sampling import Plan
from ifca.core.types import ClientReply, ClusterState, Data, Params, Task, select
from ifca.methods.averaging import average
from ifca.methods.ifca_plain import IFCA_PLAIN
from ifca.methods.method import Ask, Event, Problem, Round

SLOPE, MOVE, STEPS = "slope of ", "move of ", "steps"  # what members are sent beside their model
TRIED = (0.0, *(0.5**q for q in range(10)))  # eta
ENOUGH = 0.01  # of what the slope promises
FEW = 2  # samples for each feature


def suits(recipe: Recipe, task: Task) -> None:
    """Refuse models that are not convex, and parts of the data."""
    if task.first is None or task.first.dense != ():
        raise InvalidInput('giant is for convex models: use model = "linear" or "logistic"')
    if recipe.batch_size is not None or recipe.resample or recipe.augment or recipe.shared:
        raise InvalidInput(
            "giant takes a client's whole data as it is and shares no layers: leave out batch_size, "
            "local_epochs, resample, augment and shared"
        )


def client(
    task: Task, recipe: Recipe, _step: float, theta: Params, data: Data, plan: Plan, own: Tensor | None = None
) -> ClientReply:
    """What ONE client does in any of the three exchanges; theta says in which."""
    suits(recipe, task)
    models = {name: value for name, value in theta.items() if not name.startswith((SLOPE, MOVE, STEPS))}
    j, losses = estimate(task, models, data, plan, own)
    chosen = select(models, j)
    update = {name: torch.zeros_like(value[0]) for name, value in theta.items()}
    if STEPS in theta:
        move = {name: theta[_beside(MOVE, name)][j] for name in models}
        update[STEPS] = line_values(task, chosen, move, theta[STEPS][j], data)
    elif len(theta) > len(models):
        slope = {name: theta[_beside(SLOPE, name)][j] for name in models}
        update |= newton_direction(task, chosen, slope, data, recipe.local_steps)
    else:
        update = gradient(task, chosen, data)
    return ClientReply(j, losses, update)


def newton_direction(task: Task, theta: Params, slope: Params, data: Data, steps: int) -> Params:
    """P with H_i p = slope, by so many steps of conjugate gradients from zero."""

    def bare(v: Params) -> Params:  # H_i v, without forming H_i
        found: Params = grad(lambda at: _dot(gradient(task, at, data), v))(theta)
        return found

    damping = _damping(slope, bare(slope), data)

    def curved(v: Params) -> Params:
        return _plus(bare(v), damping, v)

    p = {name: torch.zeros_like(value) for name, value in slope.items()}
    residual = way = slope
    left = begun = _dot(slope, slope)
    eps = torch.finfo(left.dtype).eps
    for _ in range(steps):
        bent = curved(way)
        curve = _dot(way, bent)
        going = (curve > 0) & (left > eps**2 * begun)
        far = torch.where(going, left / torch.where(going, curve, 1), 0)
        p, residual = _plus(p, far, way), _plus(residual, -far, bent)
        before, left = left, _dot(residual, residual)
        way = _plus(residual, torch.where(going, left / torch.where(going, before, 1), 0), way)
    return p


def _damping(slope: Params, bent: Params, data: Data) -> Tensor:
    """A multiple of I for a client that has few samples for so many features; of others zero.

    In directions that it has no sample in, H_i is zero; there it takes its curvature along the slope, times
    features per sample. bent: H_i slope.
    """
    first = next(iter(slope.values()))
    features = sum(value.numel() for value in slope.values()) / first.shape[0]
    length, n = _dot(slope, slope), data.weight.sum()
    usual = _dot(slope, bent) / torch.where(length > 0, length, 1)
    return torch.where(n < FEW * features, usual * features / n.clamp(min=1), 0)


def line_values(task: Task, theta: Params, move: Params, steps: Tensor, data: Data) -> Tensor:
    """The local objective at theta - eta move, for each eta of steps: [steps]."""
    return torch.stack([objective(task, _plus(theta, -eta, move), data) for eta in steps.unbind()])


def longest(values: Tensor, promised: Tensor) -> Tensor:
    """The largest eta of TRIED that gains enough, 0 where none does: [k].

    values: [k, TRIED] the clusters' objectives; promised: [k] p_j'g_j.
    """
    tried = values.new_tensor(TRIED)
    enough = values <= values[:, :1] - ENOUGH * tried * promised[:, None]
    return (tried * enough).max(1).values


def server(
    problem: Problem, state: ClusterState, now: Round, ask: Ask
) -> tuple[ClusterState, list[Event] | None]:
    """The second and the third exchange, and the step."""
    names, who, cluster = list(state.theta), now.who, now.replies.identity
    slope = _means(now.replies, names)
    second = ask.turn(_sending(state, SLOPE, slope), who, cluster)
    move = _means(second, names)
    steps = next(iter(move.values())).new_tensor(TRIED).expand(len(state.live), -1)
    wanted = _sending(state, MOVE, move)
    third = ask.turn(replace(wanted, theta={**wanted.theta, STEPS: steps.to(_like(state))}), who, cluster)
    promised = torch.stack([(move[name] * slope[name]).flatten(1).sum(1) for name in names]).sum(0)
    eta = longest(_means(third, [STEPS])[STEPS], promised) * (third.total.weight > 0)
    theta = {
        name: (value.double() - _wide(eta, value) * move[name]).to(value.dtype)
        for name, value in state.theta.items()
    }
    return _with_bytes(average(problem, state, now, models=theta), (second, third), who), None


def _with_bytes(state: ClusterState, turns: tuple[Replies, Replies], who: Tensor) -> ClusterState:
    """Count the second and the third exchange."""
    down, up = state.bytes_down.clone(), state.bytes_up.clone()
    if turns[0].carried is not None:
        for turn in turns:
            assert turn.carried is not None
            down, up = down + turn.carried[0], up + turn.carried[1]
        return replace(state, bytes_down=down, bytes_up=up)
    model = Wire.of(state.theta, state.live, frozenset()).clustered
    down[who] += 2 * model
    up[who] += model + _like(state).element_size() * len(TRIED)
    return replace(state, bytes_down=down, bytes_up=up)


def _means(replies: Replies, names: list[str]) -> Params:
    """Of the members of each cluster [k, ...], in double precision; zero where there are none."""
    weight = replies.total.weight.clamp(min=1e-300)
    return {name: replies.total.total[name] / _wide(weight, replies.total.total[name]) for name in names}


def _sending(state: ClusterState, what: str, more: Params) -> ClusterState:
    """The models with something of the same shapes beside them, as members are sent it."""
    extra = {_beside(what, name): value.to(state.theta[name].dtype) for name, value in more.items()}
    return replace(state, theta={**state.theta, **extra})


def _beside(what: str, name: str) -> str:
    return what + name.replace(".", "/")  # a dot would be taken for a layer of the model


def _like(state: ClusterState) -> Tensor:
    return next(iter(state.theta.values()))


def _wide(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (like.dim() - 1))


def _dot(a: Params, b: Params) -> Tensor:
    return torch.stack([(value * b[name]).sum() for name, value in a.items()]).sum()


def _plus(a: Params, times: Tensor, b: Params) -> Params:
    return {name: value + times * b[name] for name, value in a.items()}


GIANT = replace(
    IFCA_PLAIN,
    name="giant",
    title="IFCA with GIANT",
    about="plain IFCA whose clusters take Newton steps (GIANT), for linear and logistic models",
    client=client,
    server=server,
    suits=suits,
    gradients=True,
)
