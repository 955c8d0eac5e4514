"""What single methods can be told beside what all of them share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ifca.core.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class MethodSettings:
    """A part of the recipe; what is another method's is not looked at."""

    ditto_lambda: float = 1.0
    """How strongly a client's own model is pulled towards the common one (ditto)."""
    mocha_lambda: float = 1e-4
    """How strongly related clients' models are brought together (mocha)."""
    inner_step_size: float | None = None
    """Step by which a client adapts the common model to its own data (per-fedavg); none: step_size."""
    cfl_thresholds: tuple[float, ...] | None = None
    """When cfl tries to split a cluster: its model moves less than the first number in a round, while a
    client changes it by more than the second (the authors': 0.4 and 1.6). None: a tenth, and six tenths, of
    the farthest that a model has moved in a round of this run."""
    cfl_gamma: float = 0.1
    """cfl splits a cluster if sqrt((1 - alpha) / 2) is more than this, alpha the largest cosine of updates of
    two clients that would be parted; 0: always."""
    cfl_after: int = 20
    """cfl splits no cluster in the first so many rounds."""
    fedgroup_distance: Literal["edc", "madc"] = "edc"
    """How fedgroup finds groups among first updates. edc: k-means on their cosines with their k main
    directions. madc: complete linkage on how much two clients' cosines with all others differ."""
    fedgroup_step: float = 0.0
    """How much the groups' models of fedgroup move to each other after a round (the authors': 0.1); 0: do
    not."""
    stocfl_tau: float = 0.4
    """stocfl makes one cluster of two if the cosine of their clients' mean first updates is at least this
    (the authors': 0.2 to 0.65)."""
    stocfl_pull: float = 0.05
    """stocfl: the share of the way to a global model, trained besides, that clusters' models go after every
    round; 0: there is none."""
    sr_lambda: float | None = None
    """sr-fca: clients are neighbours where their mean loss under each other's models is at most this. None:
    the value that parts all such losses in two with the least variance within the two parts."""

    def check_settings(self) -> None:
        """Refuse what cannot be, naming the field."""
        if self.cfl_after < 0:
            raise InvalidInput(f"cfl_after must be at least 0, got {self.cfl_after}")
        for name in ("ditto_lambda", "mocha_lambda"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InvalidInput(f"{name} must be zero or positive, got {getattr(self, name)}")
        if self.inner_step_size is not None and not self.inner_step_size > 0:
            raise InvalidInput(f"inner_step_size must be a positive number, got {self.inner_step_size}")
        if not 0 <= self.cfl_gamma < 1:
            raise InvalidInput(f"cfl_gamma must be in [0, 1), got {self.cfl_gamma}")
        if not 0 <= self.fedgroup_step < math.inf:
            raise InvalidInput(f"fedgroup_step must be zero or positive, got {self.fedgroup_step}")
        if not -1 <= self.stocfl_tau <= 1:
            raise InvalidInput(f"stocfl_tau must be in [-1, 1], got {self.stocfl_tau}")
        if not 0 <= self.stocfl_pull < 1:
            raise InvalidInput(f"stocfl_pull must be in [0, 1), got {self.stocfl_pull}")
        rests = self.cfl_thresholds
        if rests is not None and not (len(rests) == 2 and all(0 < value < math.inf for value in rests)):
            raise InvalidInput(f"cfl_thresholds must be two positive numbers, got {list(rests)}")
        if self.sr_lambda is not None and not (math.isfinite(self.sr_lambda) and self.sr_lambda > 0):
            raise InvalidInput(f"sr_lambda must be a positive number, got {self.sr_lambda}")
