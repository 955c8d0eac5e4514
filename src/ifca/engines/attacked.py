"""An attack in a round: after all replies are there, and before the server checks and puts them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ifca.core.attacks import Attack, Block, Seen
from ifca.core.averages import running_statistics
from ifca.core.random import generator, key_of
from ifca.core.recipe import Recipe
from ifca.core.replies import Part
from ifca.core.sketch import Sketch
from ifca.core.types import Params
from ifca.engines.updates import BlockedUpdates
from ifca.methods.registry import sends_models


class Found(NamedTuple):
    """The replies of p participants, in their order."""

    identity: Tensor  # [p]
    losses: Tensor  # [p, k]; NaN where not judged
    updates: BlockedUpdates
    sketch: Tensor | None  # [p, q]

    @property
    def loss(self) -> Tensor:
        """Of the model that each claims: [p]."""
        return self.losses.gather(1, self.identity[:, None])[:, 0]


@dataclass(frozen=True)
class Attacking:
    """The attackers among the participants of round t."""

    attack: Attack
    recipe: Recipe
    theta: Params  # [k, ...] the models that were sent
    known: Tensor  # [p] the one model that each was sent, -1: all
    rows: Tensor  # [a] the attackers' places among the participants
    keys: tuple[int, ...]  # [a]
    t: int

    def on(self, found: Found, sketch: Sketch | None) -> Found:
        """The replies with those of the attackers in place of what their turns gave."""
        rows, kind = self.rows, self.attack.kind
        own, honest = found.identity[rows], self._honest(len(found.identity))
        identity, losses = found.identity.clone(), found.losses.clone()
        if kind.claims is not None:
            claimed = kind.claims(found.identity[honest], own, found.losses[rows])
            claimed = torch.where(self.known[rows] < 0, claimed, own)  # the server knows the others
            identity[rows] = claimed
            losses[rows, own], losses[rows, claimed] = losses[rows, claimed], losses[rows, own]
        if kind.lies:
            losses[rows] *= self._factor
        sent = self._sent(found, identity[rows], honest)
        told = found.sketch
        if sketch is not None and told is not None:
            told = told.clone()
            told[rows] = sketch.of(self._changes(sent, identity[rows])).cpu() * self._opposite
        return Found(identity, losses, replaced(found.updates, rows, sent), told)

    @property
    def models(self) -> bool:
        """Whether updates are models; else gradients."""
        return sends_models(self.recipe)

    @property
    def _factor(self) -> float:
        """What lying attackers multiply losses by."""
        return 1.0 if self.attack.strength is None else self.attack.strength

    @property
    def _opposite(self) -> float:
        return -self._factor if self.attack.kind.lies else 1.0

    def _honest(self, p: int) -> Tensor:
        mask = torch.ones(p, dtype=torch.bool)
        mask[self.rows] = False
        return torch.nonzero(mask)[:, 0]

    def _sent(self, found: Found, claimed: Tensor, honest: Tensor) -> Params:
        """The attackers' updates [a, numbers of a parameter]; running statistics stay what they are."""
        names, updates = frozenset(self.theta), found.updates.of(self.rows)
        sent = {n: updates.like.new_empty(len(self.rows), s.numel()) for n, s in updates.shapes.items()}
        for part, value in zip(updates.layout(names), updates.blocks(names), strict=True):
            sent[part.name][:, part.start : part.start + part.width] = value
        sends = self.attack.kind.sends
        for j in sorted(set(claimed.tolist())) if sends is not None else ():
            assert sends is not None
            group = torch.nonzero(claimed == j)[:, 0]
            mates = honest[found.identity[honest] == j]
            seen = _Round(self, found, mates if len(mates) else honest, group, j)
            for part, value in zip(seen.layout, sends(seen.seen), strict=True):
                where = sent[part.name][:, part.start : part.start + part.width]
                where[group.to(where.device)] = (seen.base(part, j) + value).to(where.dtype)
        return sent

    def _changes(self, sent: Params, claimed: Tensor) -> Params:
        """What the attackers' updates change in the models that they claim: [a, ...]."""
        shaped = {n: value.view(len(value), *self.theta[n].shape[1:]) for n, value in sent.items()}
        if not self.models:
            return shaped
        return {n: value - self.theta[n][claimed.to(value.device)] for n, value in shaped.items()}


@dataclass(frozen=True)
class _Round:
    """What the attackers who claim model j see: their honest mates, and themselves."""

    now: Attacking
    found: Found
    mates: Tensor  # [h] places of honest participants
    group: Tensor  # [a] which of the attackers
    j: int

    @property
    def seen(self) -> Seen:
        return Seen(self._blocks, self.now.attack.strength, self._noise, self._towards)

    @cached_property
    def updates(self) -> BlockedUpdates:
        """Of the mates, then of the attackers: together, so that they come in the same blocks."""
        return self.found.updates.of(torch.cat([self.mates, self.now.rows[self.group]]))

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self.now.theta) - running_statistics(self.now.theta)

    @cached_property
    def layout(self) -> list[Part]:
        return self.updates.layout(self.names)

    def base(self, part: Part, j: int | Tensor) -> Tensor:
        """What changes are counted from: model j (option II), or zero."""
        value = self.now.theta[part.name].flatten(1)[:, part.start : part.start + part.width].double()
        return value[j] if self.now.models else torch.zeros_like(value[j])

    def _blocks(self) -> Iterator[Block]:
        h, identity = len(self.mates), self.found.identity[self.updates.rows]
        for part, value in zip(self.layout, self.updates.blocks(self.names), strict=True):
            changes = value.double() - self.base(part, identity.to(value.device))
            own = changes[h:]
            yield Block(changes[:h] if h else own, own, part)

    def _noise(self, part: Part) -> Tensor:
        """By seed, round, attacker and parameter: not by blocks."""
        like, size = self.now.theta[part.name], self.now.theta[part.name][0].numel()
        attack, drawn = self.now.attack, []
        for row in self.group.tolist():
            rng = generator(attack.seed, "attack", self.now.t, self.now.keys[row], key_of(part.name))
            whole = torch.randn(size, generator=rng, dtype=torch.float64)
            drawn.append(whole[part.start : part.start + part.width])
        return torch.stack(drawn).to(like.device)

    def _towards(self, part: Part) -> Tensor:
        theta = self.now.theta[part.name].flatten(1)[:, part.start : part.start + part.width].double()
        way = theta[self._nearest] - theta[self.j]
        return way if self.now.models else -way / self.now.recipe.step(self.now.t)

    @cached_property
    def _nearest(self) -> int:
        """The other model nearest to j; j itself where there is no other."""
        theta = [self.now.theta[name].flatten(1).double() for name in sorted(self.names)]
        far = torch.stack([(value - value[self.j]).square().sum(1) for value in theta]).sum(0)
        far[self.j] = torch.inf
        return int(far.argmin()) if len(far) > 1 else self.j


def attacking(
    attack: Attack | None, recipe: Recipe, theta: Params, who: Tensor, known: Tensor, t: int
) -> Attacking | None:
    """The attack in round t; None where no participant attacks, or attacks more than its data."""
    if attack is None or not attack.kind.in_round:
        return None
    key = dict(zip(attack.rows, attack.keys, strict=True))
    rows = [row for row, i in enumerate(who.tolist()) if i in key]
    keys = tuple(key[int(who[row])] for row in rows)
    return Attacking(attack, recipe, theta, known, torch.tensor(rows), keys, t) if rows else None


def replaced(updates: BlockedUpdates, rows: Tensor, sent: Params) -> BlockedUpdates:
    """The same with other updates of some participants. rows: [a]; sent: [a, numbers of a parameter]."""
    place = torch.full((int(updates.rows.max()) + 1,), -1)
    place[rows] = torch.arange(len(rows))

    def form(some: Tensor, parts: list[Part]) -> Iterator[tuple[Tensor, list[Tensor]]]:
        at = place[some]
        honest, others = torch.nonzero(at < 0)[:, 0], torch.nonzero(at >= 0)[:, 0]
        for where, values in updates.form(some[honest], parts) if len(honest) else ():
            yield honest[where], values
        if len(others):
            which = at[others].to(updates.like.device)
            yield others, [sent[n][which, start : start + width] for n, start, width in parts]

    return replace(updates, form=form)
