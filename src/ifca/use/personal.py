"""One client's own model, chosen as all clients of a run choose (training/personalise.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifca.core.errors import Diverged, InvalidInput
from ifca.core.optimisers import optimiser_of
from ifca.core.random import generator
from ifca.core.safe_choice import choose
from ifca.core.types import Data, Params
from ifca.models.task import make_draw
from ifca.training.candidates import ALL, SERVED, Candidate, Tuner
from ifca.use.trained import Trained

FEWEST = 4  # samples that can be split into parts that mean something


@dataclass(frozen=True)
class Tuning:
    """How to personalise. steps: only so many are tried; step_size: None, the run's; seed: of the folds."""

    steps: int | None = None
    step_size: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class PersonalModel:
    """What serves the client: its cluster's model, or what it chose instead."""

    tuner: Tuner
    candidate: Candidate
    served: Params  # [1, ...]
    own: Params  # [1, ...]
    report: dict[str, Any]

    def outputs(self, x: Tensor) -> Tensor:
        """Of samples as the models see them: [n, ...]."""
        return self.tuner.outputs([self.candidate], self.served, self.own, x[None])[0]


def personal_model(
    trained: Trained, model: Params, data: Data, where: str, tuning: Tuning, key: int
) -> PersonalModel:
    """Let one client choose by its samples, and by what candidates saved the run's own clients.

    model: the one that serves it. where: what complaints name; key: the client's, for its folds.
    """
    n = len(data.x)
    if n < FEWEST:
        raise InvalidInput(f"{where}: has {n} samples; to personalise, at least {FEWEST} are needed")
    candidates, prior = trained.experience or (ALL, None)
    if tuning.steps is not None:
        own_steps = Candidate("tuned", tuning.steps), Candidate("half tuned", tuning.steps)
        candidates, prior = (SERVED, *own_steps), None
    tuner = _tuner(trained, tuning)
    served = {name: value[None] for name, value in model.items()}
    batch = Data(*(part[None] for part in data))
    with torch.no_grad():
        tried = tuner.tried(candidates, served, batch, np.array([n]), np.array([key], np.uint64))
        if not np.isfinite(tried.loss[:, 1:]).any():
            raise Diverged(f"personalising diverged; try a smaller --step-size than {tuner.step}")
        c = int(choose(tried.savings, prior).candidate[0])
        own = tuner.made([candidates[c]], served, batch)
    report = {"samples": n, "chosen": str(candidates[c])}
    for when, at in (("before", 0), ("after", c)):
        right = float(tried.right[0, at])
        report[when] = {"loss": float(tried.loss[0, at]), "accuracy": None if math.isnan(right) else right}
    return PersonalModel(tuner, candidates[c], served, own, report)


def _tuner(trained: Trained, tuning: Tuning) -> Tuner:
    """Steps as in the run's rounds; a local model begins as the run's first model did."""
    config = trained.config
    size = config.step_size if tuning.step_size is None else tuning.step_size
    wrong_steps = tuning.steps is not None and tuning.steps < 1
    if wrong_steps or not (math.isfinite(size) and size > 0):
        raise InvalidInput(
            f"personalise: steps and step size must be positive, got {tuning.steps} and {size}"
        )
    dtype = next(iter(trained.theta.values())).dtype
    common = make_draw(trained.factory, dtype)(generator(config.seed, "initial", 0, 0))
    mapped, how = config.engine != "loop", optimiser_of(config)
    return Tuner(trained.task, size, common, tuning.seed, mapped, how)
