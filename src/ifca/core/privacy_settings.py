"""Differential privacy of clients: what a recipe says of it, and what does not go with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from ifca.core.errors import InvalidInput

LEAST_NOISE = 1e-100  # with less, epsilon has no finite number


class Spent(NamedTuple):
    """What trainings before this one have told of their clients: epsilons add up, and so do deltas."""

    epsilon: float
    delta: float

    @classmethod
    def of(cls, facts: dict[str, Any] | None) -> Spent | None:
        """facts: the part privacy of a summary."""
        if facts is None or facts["epsilon"] is None:
            return None
        all_of_it = facts.get("in_all", facts)
        return cls(all_of_it["epsilon"], all_of_it["delta"])


@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """A part of the recipe: noise on what clusters' clients sum up to (docs/security.md)."""

    dp_epsilon: float | None = None
    """Client-level differential privacy: the most epsilon that the run may spend. Alone: the noise follows,
    so that all rounds together spend it. With dp_noise: training stops before it is passed. None, and no
    dp_noise: no differential privacy."""
    dp_noise: float | None = None
    """The noise multiplier: the noise's standard deviation over what one client can change. None: it follows
    from dp_epsilon."""
    dp_delta: float = 1e-5
    """The delta of differential privacy; less than 1 over the number of clients."""
    dp_clip: float = 1.0
    """The longest change of the model (option gradient: the longest gradient) that a client may send, over
    all parameters; longer ones are shortened to it."""

    @property
    def private(self) -> bool:
        """Whether sums are noised."""
        return self.dp_epsilon is not None or self.dp_noise is not None

    def check_privacy(self) -> None:
        """Refuse what cannot be, naming the field."""
        for name in ("dp_epsilon", "dp_noise", "dp_clip"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidInput(f"{name} must be a positive number, got {value}")
        if self.dp_noise is not None and self.dp_noise < LEAST_NOISE:
            raise InvalidInput(f"dp_noise must be at least {LEAST_NOISE:g}, got {self.dp_noise}")
        if not 0 < self.dp_delta < 1:
            raise InvalidInput(f"dp_delta must be in (0, 1), got {self.dp_delta}")
        if self.private:
            _check_the_rest(self)
            return
        for name in ("dp_delta", "dp_clip"):
            if getattr(self, name) != getattr(PrivacySettings, name):
                raise InvalidInput(
                    f"{name} alone makes nothing private: set dp_epsilon or dp_noise too, or leave it out"
                )


def _check_the_rest(recipe: Any) -> None:
    """What reads the clients' data beside the noised sums would not be covered by epsilon."""
    wrong = {
        "early_stopping": (recipe.early_stopping, "give the number of rounds"),
        f"restarts = {recipe.restarts}": (recipe.restarts > 1, "set restarts = 1"),
        f'initial = "{recipe.initial}"': (
            recipe.initial not in ("random", "bernoulli"),
            'use initial = "random", or a warm start with models that no client\'s data made',
        ),
        f'aggregation = "{recipe.aggregation}"': (recipe.aggregation != "mean", 'use "mean"'),
        "weighted": (recipe.weighted, "every client must weigh the same: set weighted = false"),
        'class_weights = "balanced"': (
            recipe.class_weights == "balanced",
            "it counts the clients' classes: give the weights as numbers",
        ),
        "stable_after": (recipe.stable_after is not None, "leave it out"),
        "personalise": (
            recipe.personalise,
            "each client can do it with the finished models: 'ifca predict RUN ITS-DATA --personalise'",
        ),
        f'batch_norm = "{recipe.batch_norm}"': (
            recipe.batch_norm != "refuse",
            "noise makes variances negative: use a model without batch norm",
        ),
    }
    for what, (is_so, advice) in wrong.items():
        if is_so:
            raise InvalidInput(f"{what} does not go with dp_epsilon or dp_noise: {advice}")
