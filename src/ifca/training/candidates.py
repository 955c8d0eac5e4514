"""What may serve a client in place of its cluster's model: candidates, tried in folds, made for good."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.optimisers import PLAIN, Optimiser
from ifca.core.random import UInts, shuffled
from ifca.core.safe_choice import FOLDS, CandidateSavings
from ifca.core.types import Data, Params, Task
from ifca.engines.tuning import Rung, climb, over_clients

Kind = Literal["served", "tuned", "half tuned", "local", "half local"]


class Candidate(NamedTuple):
    """A way to make a client's own model.

    served: its cluster's model as it is. tuned: that model after some full-batch steps on the client's data.
    local: the common start after some such steps. half ...: the mean of what that and the served model say.
    """

    kind: Kind
    steps: int = 0

    @property
    def alone(self) -> bool:
        """Whether it begins at the common start."""
        return self.kind.endswith("local")

    @property
    def half(self) -> bool:
        """Whether the served model has a say too."""
        return self.kind.startswith("half")

    def __str__(self) -> str:
        """As tables name it."""
        return self.kind if self.kind == "served" else f"{self.kind}, {self.steps} steps"


SERVED = Candidate("served")
ALL = (
    SERVED,
    *(Candidate("tuned", steps) for steps in (5, 10, 20, 40, 80, 160)),
    *(Candidate("half tuned", steps) for steps in (20, 80)),
    Candidate("local", 320),
    Candidate("half local", 320),
)


class Tried(NamedTuple):
    """What b clients found of C candidates, on samples held out."""

    savings: CandidateSavings
    loss: NDArray[np.float64]  # [b, C]
    right: NDArray[np.float64]  # [b, C] share of right predictions; NaN in regression


@dataclass(frozen=True)
class Tuner:
    """How clients tune: the task, the step size gamma, where a local model begins, the kind of step."""

    task: Task
    step: float
    common: Params  # one model
    seed: int
    mapped: bool = True  # whether the model can be vectorised over clients
    optimiser: Optimiser = PLAIN  # what it remembers is kept from the first step to the last

    def tried(
        self,
        candidates: tuple[Candidate, ...],
        served: Params,
        data: Data,
        sizes: NDArray[np.int64],
        keys: UInts,
    ) -> Tried:
        """Each candidate, by b clients with served models [b, ...].

        Each of FOLDS parts of a client's samples judges models that were tuned on the other parts.
        """
        fold = torch.from_numpy(folds(self.seed, sizes, keys)).to(data.weight.device)  # [b, n], -1: padding
        part = torch.arange(FOLDS, device=fold.device)
        learned = ((fold[:, None] != part[:, None]) & (fold[:, None] >= 0)).to(data.weight)  # [b, FOLDS, n]
        rows = torch.arange(len(fold), device=fold.device)[:, None]
        columns = torch.arange(fold.shape[1], device=fold.device)
        judged: dict[tuple[bool, int], Tensor] = {}  # outputs [b, n, ...] for samples held out
        for alone in sorted({candidate.alone for candidate in candidates}):
            for rung in self._climb(candidates, alone, served, data, learned):
                judged[alone, rung.steps] = rung.outputs[rows, fold.clamp(min=0), columns]
        answers = [self._answer(candidate, judged) for candidate in candidates]
        losses = self._each(self.task.loss, answers, data)  # [b, n, C]
        present = (fold >= 0)[:, :, None]
        count = torch.from_numpy(sizes).to(fold.device)[:, None]
        saved = losses[:, :, :1] - losses
        mean = torch.where(present, saved, 0.0).sum(1) / count
        spread = torch.where(present, (saved - mean[:, None]) ** 2, 0.0).sum(1)
        loss, right = torch.where(present, losses, 0.0).sum(1) / count, torch.full_like(mean, torch.nan)
        if self.task.correct is not None:
            correct = self._each(self.task.correct, answers, data)
            right = torch.where(present, correct, 0.0).sum(1) / count
        savings = CandidateSavings(mean.cpu().numpy(), spread.cpu().numpy(), sizes)
        return Tried(savings, loss.cpu().numpy(), right.cpu().numpy())

    def made(self, chosen: list[Candidate], served: Params, data: Data) -> Params:
        """The models [b, ...] of the chosen candidates, from all of the clients' data."""
        models = {name: value.clone() for name, value in served.items()}
        for alone in sorted({candidate.alone for candidate in chosen if candidate.steps}):
            for rung in self._climb(tuple(chosen), alone, served, data, data.weight[:, None]):
                mine = [i for i, c in enumerate(chosen) if (c.alone, c.steps) == (alone, rung.steps)]
                if mine and rung.steps:
                    now = rung.models()
                    for name, value in models.items():
                        value[mine] = now[name][mine, 0]
        return models

    def outputs(self, chosen: list[Candidate], served: Params, models: Params, x: Tensor) -> Tensor:
        """What b clients' own models say of their x [b, n, ...]."""
        said = over_clients(self.task.output, self.mapped)
        own, half = said(models, x), torch.tensor([candidate.half for candidate in chosen], device=x.device)
        if not bool(half.any()):
            return own
        both = _together(self.task, own, said(served, x))
        return torch.where(half.view(-1, *[1] * (own.dim() - 1)), both, own)

    def _climb(
        self, candidates: tuple[Candidate, ...], alone: bool, served: Params, data: Data, learned: Tensor
    ) -> Iterator[Rung]:
        rungs = sorted({c.steps for c in candidates if c.alone == alone} | ({0} if not alone else set()))
        b = len(data.x)
        common = {name: value.expand(b, *value.shape) for name, value in self.common.items()}
        start, how = (common, replace(self.optimiser, proximal=0.0)) if alone else (served, self.optimiser)
        steps = self.step, tuple(rungs)
        return climb(self.task, start, data, learned, *steps, mapped=self.mapped, optimiser=how)

    def _answer(self, candidate: Candidate, judged: dict[tuple[bool, int], Tensor]) -> Tensor:
        outputs = judged[candidate.alone, candidate.steps]
        return _together(self.task, outputs, judged[False, 0]) if candidate.half else outputs

    def _each(self, judge: Callable[[Tensor, Tensor], Tensor], answers: list[Tensor], data: Data) -> Tensor:
        """A number of each sample under each candidate: [b, n, C]."""
        flat = [judge(answer.flatten(0, 1), data.y.flatten(0, 1)) for answer in answers]
        return torch.stack([one.view(data.weight.shape) for one in flat], 2).double()


def folds(seed: int, sizes: NDArray[np.int64], keys: UInts) -> NDArray[np.int64]:
    """The part of each sample of each client: [b, longest]; -1 after its last. By seed and client."""
    order = shuffled(seed, "personalise", sizes, keys)
    found = np.full_like(order, -1)
    rows, places = np.nonzero(order >= 0)
    found[rows, order[rows, places]] = places % FOLDS
    return found


def _together(task: Task, one: Tensor, other: Tensor) -> Tensor:
    """The mean of two models' answers: of their probabilities where the loss is the cross-entropy."""
    if not task.classifies:
        return (one + other) / 2
    return torch.logaddexp(one.log_softmax(-1), other.log_softmax(-1)) - math.log(2)
