"""What a method is: a frozen record of pure functions. Rounds, engines, folders and reports know no more.

A new method is a file that makes such a record and registers it (methods/registry.py); ifca_plain.py is the
example to copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ifca.core.client import client_round
from ifca.core.random import UInts
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs, Replies, Savings, Solutions
from ifca.core.types import ClientReply, ClusterState, Params, Task

Event = dict[str, Any]
"""Something that the server decided in a round: a line of the report."""


Compare = Callable[[Params, Tensor, Tensor, Tensor], Savings]
"""models [a, ...], clients [p], the number of each one's own model [p], those of others [p, q] -> what it
would lose more under them, on samples that it set aside (Needs.aside)."""


class Turn(Protocol):
    """Another turn in the same round, or in that of the given state."""

    def __call__(self, state: ClusterState, who: Tensor, models: Tensor, needs: Needs = ..., /) -> Replies:
        """The replies of clients who [p]; models: the one that each is sent [p], -1: all of the state's."""
        ...


class Ask(NamedTuple):
    """What a server may ask once more in the same round."""

    turn: Turn
    compare: Compare


@dataclass(frozen=True)
class Problem:
    """What a method may know and ask of a federation."""

    recipe: Recipe
    keys: UInts  # [m] a number of each client, from its id
    shared: frozenset[str]  # parameters that all clusters share
    models: int  # places for models
    draw: Callable[[int, int], Params]
    """restart, redraw -> different initial models [models, ...]; of personal ones and one_start [1, ...]."""
    given: Params | None  # the models of a warm start, as draw would give them; None: there are none
    judge: Callable[[Params, Tensor], Tensor] | None
    """models, clients [p] -> their losses [p, k]; None: clients elsewhere are asked in rounds only."""
    local_solutions: Callable[[int], tuple[Params, Tensor, Tensor]]
    """restart -> a simple model of each client alone (line 1 of Algorithm 1) [m, ...]; bytes down, up [m]."""
    solve: Callable[[], Solutions]
    """-> each client's solution of the probe, without the samples that it sets aside."""
    compare: Compare
    """Of such solutions."""
    cluster: Callable[[Params], Tensor]
    """models [m, ...] -> clusters [m], by the clusterer of the job (line 2 of Algorithm 1)."""
    checked: bool = False  # clients' words are held against each other: one may be lying

    @property
    def m(self) -> int:
        """Number of clients."""
        return len(self.keys)


class Round(NamedTuple):
    """One round as the server sees it."""

    who: Tensor  # [p] those who replied
    known: Tensor  # [p] the one model that each was sent; -1: all of them
    replies: Replies


Client = Callable[..., ClientReply]
"""What one client does: as client_round of core/client.py, with its arguments."""


def sampled(_recipe: Recipe, _state: ClusterState, who: Tensor) -> Tensor:
    """Those who were drawn for the round take part."""
    return who


def send_assigned(_recipe: Recipe, state: ClusterState, who: Tensor) -> Tensor:
    """Everybody is sent the one model whose number the server knows."""
    return state.identity[who]


def sums_only(_recipe: Recipe, _state: ClusterState) -> Needs:
    """The sums are enough."""
    return Needs()


def serve_assigned(state: ClusterState, _losses: Tensor) -> Tensor:
    """A client is served by the model of the cluster that it was put in."""
    return state.identity


def all_is_said(_problem: Problem, state: ClusterState, _ask: Ask) -> tuple[ClusterState, list[Event]]:
    """Nothing is left to decide when the rounds end."""
    return state, []


def anything(_recipe: Recipe, _task: Task) -> None:
    """Every model can be trained."""


def grow(_recipe: Recipe, state: ClusterState, new: int) -> ClusterState | None:
    """Rows at the end for clients that join: they have no cluster yet."""
    return widened(state, torch.full((new,), -1))


def widened(state: ClusterState, identity: Tensor) -> ClusterState:
    """The state with clients at the end, of whom only the identity is known. identity: [new]."""
    none = torch.zeros_like(identity)
    more = {"identity": identity, "asked": none - 1, "bytes_down": none, "bytes_up": none}
    rows = {name: torch.cat([getattr(state, name), value]) for name, value in more.items()}
    checks = {name: torch.cat([value, none]) for name, value in state.checks.items()}
    return ClusterState(**{**vars(state), **rows, "checks": checks})


@dataclass(frozen=True)
class Method:
    """One method of clustered federated learning."""

    name: str  # as configs call it
    title: str  # as tables and pages call it
    about: str  # what it is, in a few words, as a page says it
    start: Callable[[Problem, int], ClusterState]
    """problem, number of the restart -> the state before round 0."""
    server: Callable[[Problem, ClusterState, Round, Ask], tuple[ClusterState, list[Event] | None]]
    """problem, state, the round, a way to ask once more -> the next state; events (None: never any)."""
    models: Callable[[Recipe, int], int] = lambda recipe, _m: recipe.k
    """recipe, m -> places for models."""
    takes_part: Callable[[Recipe, ClusterState, Tensor], Tensor] = sampled
    """recipe, state, M_t [p] -> who is asked in this round."""
    sends: Callable[[Recipe, ClusterState, Tensor], Tensor] = send_assigned
    """recipe, state, participants [p] -> the one model that each is sent [p], -1: all, to choose among."""
    client: Client = client_round
    """What ONE client does in its turn; engines map it, so it must work under torch.func.vmap."""
    needs: Callable[[Recipe, ClusterState], Needs] = sums_only
    """recipe, state -> what the server must be given of each participant of the next round."""
    serves: Callable[[ClusterState, Tensor], Tensor] = serve_assigned
    """state, losses of the training clients under all models [m, k] -> the model that serves each [m]."""
    widened: Callable[[Recipe, Params], Params] = lambda _recipe, model: model
    """recipe, a model as it was drawn -> what a client trains (Ditto: its own and a common one)."""
    task: Callable[[Recipe, Task], Task] = lambda _recipe, task: task
    """recipe, the model as a function -> the same of the widened parameters."""
    shared: Callable[[Recipe, list[str]], frozenset[str]] | None = None
    """recipe, names of parameters -> those that all models have in common; None: recipe.shared says it."""
    finish: Callable[[Problem, ClusterState, Ask], tuple[ClusterState, list[Event]]] = all_is_said
    """problem, the state after the last round, a way to ask once more -> the state that is kept; events."""
    joined: Callable[[Recipe, ClusterState, int], ClusterState | None] = grow
    """recipe, state, number of clients that join -> the state with them; None: it must begin anew."""
    suits: Callable[[Recipe, Task], None] = anything
    """recipe, task -> nothing; refuses in a sentence what the method cannot train."""
    clustered: bool = True  # k clusters are looked for; else one model for all, or one for each
    personal: bool = False  # a model per client
    alone: bool = False  # nothing that a client trains is ever sent
    gradients: bool = False  # clients send gradients and other changes, never models, whatever the option
    one_start: bool = False  # all models begin as one
    chooses: bool = False  # clients choose among the models (line 6), in the end once more
    at_most_k: bool = False  # k is the most; fewer are no failure
    private: bool = False  # its server uses sums and counts alone, so noise on these makes it private
    referee: bool = False  # it says, with evidence, how many clusters the data support

    def facts(self) -> dict[str, Any]:
        """What reports need to know of the method: a part of summary.json."""
        return {name: getattr(self, name) for name in FACTS}


FACTS = ("title", "about", "clustered", "personal", "chooses", "at_most_k", "referee")
