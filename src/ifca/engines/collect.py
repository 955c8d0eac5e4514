"""What every engine collects of the turns of a round: sums or single updates, losses, sketches."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.averages import fold, zero_sum
from ifca.core.client import change
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs, Replies
from ifca.core.types import ClientReply, Params, model_count
from ifca.engines.attacked import Attacking, Found, add_updates
from ifca.engines.updates import Again, Kept
from ifca.methods.aggregation import aggregated, client_weights, rule_of
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
    ) -> None:
        """sizes: [p] samples; known: [p] the one model each is sent, -1: all; again: takes the turns of some
        rows once more; budget: bytes of updates to keep; attack: of some of the participants.
        """
        self.recipe, self.theta, self.needs, self.rule = recipe, theta, needs, rule_of(recipe)
        self.attack = attack
        k, like = model_count(theta), next(iter(theta.values()))
        self.weight = client_weights(recipe, sizes, like)
        self.identity = torch.empty(len(sizes), dtype=torch.long)
        self.loss = torch.empty(len(sizes), dtype=like.dtype)
        judged = needs.losses and bool((known < 0).any())
        self.losses = torch.full((len(sizes), k), torch.nan, dtype=like.dtype) if judged or attack else None
        self.judged = judged
        self.total = zero_sum(theta)
        self.folds = self.rule.additive and attack is None
        single = needs.updates or not self.folds
        self.kept = Kept(theta, len(sizes), budget, again) if single else None
        width = 0 if needs.sketch is None else needs.sketch.width
        self.sketch = torch.empty(len(sizes), width, dtype=like.dtype)
        self.clipped = torch.zeros(len(sizes), dtype=torch.bool) if recipe.private else None

    def add(self, place: Tensor, reply: ClientReply) -> None:
        """The replies of some clients: place [c] among the p, reply with a leading dimension c."""
        self.identity[place] = reply.identity.cpu()
        self.loss[place] = reply.losses.gather(1, reply.identity[:, None])[:, 0].cpu()
        if self.losses is not None:
            self.losses[place] = reply.losses.cpu()
        if self.clipped is not None:
            update, self.clipped[place] = clipped(self.recipe, self.theta, reply)
            reply = reply._replace(update=update)
        if self.folds:
            fold(self.total, reply.identity, reply.update, self.weight[place.to(self.weight.device)])
        if self.kept is not None:
            self.kept.add(place, reply.update)
        if self.needs.sketch is not None:
            self.sketch[place] = self.needs.sketch.of(change(self.recipe, self.theta, reply)).cpu()

    def replies(self) -> Replies:
        """What the server is given."""
        updates = None if self.kept is None else self.kept.updates()
        if self.attack is not None and self.losses is not None and updates is not None:
            found = self.attack.on(Found(self.identity, self.losses, updates, self.sketch), self.needs.sketch)
            self.identity, self.losses, updates, sketch = found
            self.loss, self.sketch = found.loss, self.sketch if sketch is None else sketch
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
            self.losses if self.judged else None,
            self.total,
            None if self.needs.sketch is None else self.sketch,
            updates if self.needs.updates else None,
            clipped=self.clipped,
        )
