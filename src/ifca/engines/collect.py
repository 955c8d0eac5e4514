"""What every engine collects of the turns of a round: sums or single updates, losses, sketches."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.averages import fold, zero_sum
from ifca.core.checks import capped_weights, change_lengths, local_steps, unusable, within_others
from ifca.core.client import change
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs, Rejection, Replies, Updates
from ifca.core.types import ClientReply, Params, model_count
from ifca.engines.attacked import Attacking, Found
from ifca.engines.updates import Again, Kept, add_updates
from ifca.methods.aggregation import aggregated, client_weights, rule_of, weighs
from ifca.methods.private_sum import clipped
from ifca.methods.registry import sends_models, shared_parameters


class Collected:
    """The replies of p participants, added some at a time."""

    def __init__(
        self,
        recipe: Recipe,
        theta: Params,
        sizes: NDArray[np.int64],
        known: Tensor,
        needs: Needs,
        again: Again,
        budget: int,
        attack: Attacking | None = None,
        *,
        checked: bool = False,
    ) -> None:
        """sizes: [p] samples; known: [p] the one model each is sent, -1: all; again: takes the turns of some
        rows once more; budget: bytes of updates to keep; attack: of some of the participants; checked:
        whatever the recipe says. What others sent decides nothing where epsilon counts on clipping alone.
        """
        self.recipe, self.theta, self.needs, self.rule = recipe, theta, needs, rule_of(recipe)
        self.checked, self.judged = (checked or recipe.check_updates) and not recipe.private, known < 0
        self.attack = attack
        k, like = model_count(theta), next(iter(theta.values()))
        self.weight, self.steps = client_weights(recipe, sizes, like), local_steps(recipe, sizes)
        self.identity = torch.empty(len(sizes), dtype=torch.long)
        self.loss = torch.empty(len(sizes), dtype=like.dtype)
        judged = ((needs.losses or self.checked) and bool(self.judged.any())) or attack is not None
        self.losses = torch.full((len(sizes), k), torch.nan, dtype=like.dtype) if judged else None
        self.total = zero_sum(theta)
        self.folds = self.rule.additive and attack is None and not self.checked
        single = needs.updates or not self.folds
        self.kept = Kept(theta, len(sizes), budget, again) if single else None
        width = 0 if needs.sketch is None else needs.sketch.width
        self.sketch = torch.empty(len(sizes), width, dtype=like.dtype)
        self.clipped = torch.zeros(len(sizes), dtype=torch.bool) if recipe.private else None

    def add(self, place: Tensor, reply: ClientReply) -> None:
        """The replies of some clients: place [c] among the p, reply with a leading dimension c."""
        if self.clipped is not None:
            update, self.clipped[place] = clipped(self.recipe, self.theta, reply)
            reply = reply._replace(update=update)
        if self.folds:
            fold(self.total, reply.identity, reply.update, self.weight[place.to(self.weight.device)])
        if self.kept is not None:
            self.kept.add(place, reply.update)
        if self.needs.sketch is not None:
            self.sketch[place] = self.needs.sketch.of(change(self.recipe, self.theta, reply)).cpu()
        own = reply.losses.gather(1, reply.identity[:, None])[:, 0]
        self.identity[place], self.loss[place] = reply.identity.cpu(), own.cpu()  # last: they wait for a GPU
        if self.losses is not None:
            self.losses[place] = reply.losses.cpu()

    def replies(self) -> Replies:
        """What the server is given."""
        updates: Updates | None = None if self.kept is None else self.kept.updates()
        rejected = list[Rejection]()
        if self.attack is not None and self.losses is not None and self.kept is not None:
            found = self.attack.on(
                Found(self.identity, self.losses, self.kept.updates(), self.sketch), self.needs.sketch
            )
            self.identity, self.losses, updates, sketch = found
            self.loss, self.sketch = found.loss, self.sketch if sketch is None else sketch
        if self.checked and updates is not None:
            rejected = self._rejected(updates)
            updates = self._without(rejected, updates)
        if updates is not None and not self.rule.additive:
            shared = shared_parameters(self.recipe, list(self.theta))
            self.total = aggregated(
                self.rule,
                self.theta,
                updates,
                self.identity,
                self.weight,
                shared,
                models=sends_models(self.recipe),
            )
        elif updates is not None and not self.folds:
            add_updates(self.total, updates, self.identity, self.weight)
        return Replies(
            self.identity,
            self.loss,
            self.losses if self.needs.losses and bool(self.judged.any()) else None,
            self.total,
            None if self.needs.sketch is None else self.sketch,
            updates if self.needs.updates else None,
            answered=_all_but(rejected, len(self.judged)) if rejected else None,
            clipped=self.clipped,
            rejected=tuple(rejected),
        )

    def _rejected(self, updates: Updates) -> list[Rejection]:
        """Replies that are not used."""
        models, step = sends_models(self.recipe), self.recipe.step_size
        length = change_lengths(models, step, self.theta, updates, self.identity)
        claimed = torch.full((len(length), model_count(self.theta)), torch.nan, dtype=self.loss.dtype)
        claimed[torch.arange(len(length)), self.identity] = self.loss
        losses = claimed if self.losses is None else self.losses
        return unusable(self.theta, length, self.identity, losses, self.judged, self.steps)

    def _without(self, rejected: list[Rejection], updates: Updates) -> Updates:
        """The updates of the others; all that is known of them stays, each one's word as far as it may go."""
        used = _all_but(rejected, len(self.judged))
        self.identity, self.sketch = self.identity[used], self.sketch[used]
        self.loss = within_others(self.loss[used])
        if self.losses is not None:
            self.losses = within_others(self.losses[used])
        self.weight = self.weight[used.to(self.weight.device)]
        if weighs(self.recipe):
            self.weight = capped_weights(self.weight, self.identity)
        return updates.of(torch.nonzero(used)[:, 0])


def _all_but(rejected: list[Rejection], p: int) -> Tensor:
    """Whose replies are used: [p]."""
    used = torch.ones(p, dtype=torch.bool)
    used[[one.row for one in rejected]] = False
    return used
