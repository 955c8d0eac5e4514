"""Which candidate a client may take instead of its served model: the one rule of personalisation.

A candidate saves a client so much held-out loss, on average over its samples. The client's own samples are
few, so what the candidate saved the other clients counts too (empirical Bayes): the expected saving of a
client of n samples is a line in log n, fitted over all clients, and savings scatter around it. The two are
weighed by how sure they are. A client moves only where the expected saving is above SAFE standard errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SAFE = 1.0  # standard errors that an expected saving must exceed
FOLDS = 5  # parts of a client's samples; each is held out once
OVERLAP = 1 + FOLDS / (FOLDS - 1)
"""How much less sure a mean over folds is than one over independent samples: the models of two folds learned
from the same samples (Nadeau and Bengio 2003: 1/J + n_test/n_train in place of 1/J)."""
FEWEST_FOR_LINE = 10  # clients; with fewer the expected saving is one number for all sizes


class CandidateSavings(NamedTuple):
    """What m clients saved on held-out samples with each of C candidates; candidate 0 is the served model."""

    mean: Floats  # [m, C] loss of the served model - loss of the candidate; not finite: it cannot be used
    spread: Floats  # [m, C] sum over the client's samples of (saving - mean)^2
    samples: NDArray[np.int64]  # [m] held-out samples; fewer than 2: nothing was held out


@dataclass(frozen=True)
class Prior:
    """What each candidate is expected to save a client, from what it saved others."""

    line: Floats  # [C, 2] saving = line[0] + line[1] (log n - middle)
    unsure: Floats  # [C, 2, 2] covariance of the line
    middle: float
    between: Floats  # [C] variance of savings between clients of one size
    within: Floats  # [C] variance of the saving between samples of one client

    def to_json(self) -> dict[str, Any]:
        """As plain lists; null where a number is not finite."""
        parts = {name: value for name, value in vars(self).items() if name != "middle"}
        plain = {
            name: np.where(np.isfinite(value), value.astype(object), np.array(None)).tolist()
            for name, value in parts.items()
        }
        return {**plain, "middle": self.middle}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Prior:
        """Back from plain lists."""
        parts = {name: np.asarray(value, float) for name, value in content.items() if name != "middle"}
        return cls(**parts, middle=float(content["middle"]))


class Choice(NamedTuple):
    """What each of m clients takes."""

    candidate: NDArray[np.int64]  # [m] 0: it keeps its served model
    expected: Floats  # [m] the saving it expects of it
    error: Floats  # [m] its standard error


def learn_prior(savings: CandidateSavings, keys: NDArray[np.uint64]) -> Prior | None:
    """From the savings of at least two clients. keys: of the clients, so that their order does not matter."""
    known = np.flatnonzero(savings.samples >= 2)
    known = known[np.argsort(keys[known], kind="stable")]
    if len(known) < 2:
        return None
    n = savings.samples[known].astype(float)
    logs = np.log(n)
    middle = float(logs.mean())
    slopes = len(known) >= FEWEST_FOR_LINE and bool((n != n[0]).any())
    x = np.stack([np.ones_like(n), logs - middle], 1)[:, : 2 if slopes else 1]  # [m, p]
    usable = np.isfinite(savings.mean[known]) & np.isfinite(savings.spread[known])
    mean, spread = (np.where(usable, part[known], 0.0) for part in (savings.mean, savings.spread))
    freedom = np.maximum(1.0, (usable * (n - 1)[:, None]).sum(0))
    within = spread.sum(0) / freedom
    noise = OVERLAP * within / n[:, None]  # [m, C]
    line, _ = _fit(x, mean, usable.astype(float))
    left = np.maximum(1.0, usable.sum(0) - x.shape[1])
    scatter = (usable * (mean - x @ line.T) ** 2).sum(0) / left
    between = np.maximum(0.0, scatter - (usable * noise).sum(0) / np.maximum(1, usable.sum(0)))
    variance = between + noise
    certain = variance <= 0  # all savings are equal, as those of candidate 0 are
    line, unsure = _fit(x, mean, np.where(usable, 1 / np.where(certain, 1.0, variance), 0.0))
    unsure = np.where(certain.all(0)[:, None, None], 0.0, unsure)
    missing = 2 - x.shape[1]
    line, unsure = np.pad(line, ((0, 0), (0, missing))), np.pad(unsure, ((0, 0), (0, missing), (0, missing)))
    nobody = ~usable.any(0)
    line[nobody] = -np.inf, 0.0
    return Prior(line, unsure, middle, between, within)


def _fit(x: Floats, y: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Weighted least squares for each column of y [m, C]: coefficients [C, p], and their covariance."""
    covariance = np.linalg.pinv(np.einsum("mp,mc,mq->cpq", x, weight, x), hermitian=True)
    return np.einsum("cpq,mq,mc->cp", covariance, x, weight * y), covariance


def choose(savings: CandidateSavings, prior: Prior | None) -> Choice:
    """The candidate with the largest expected saving, where that is safe. prior None: own samples alone."""
    n = np.maximum(savings.samples, 1)[:, None].astype(float)
    held_out = (savings.samples >= 2)[:, None]
    usable = np.isfinite(savings.mean) & np.isfinite(savings.spread)
    own, spread = (np.where(usable, part, 0.0) for part in (savings.mean, savings.spread))
    if prior is None:
        usable &= held_out
        expected, variance = own, OVERLAP * spread / np.maximum(1.0, n - 1) / n
    else:
        x = np.stack([np.ones(len(n)), np.log(n[:, 0]) - prior.middle], 1)  # [m, 2]
        usable &= np.isfinite(prior.line[:, 0])
        line = np.where(np.isfinite(prior.line), prior.line, 0.0)
        unsure = np.einsum("mp,cpq,mq->mc", x, prior.unsure, x)
        noise = OVERLAP * prior.within / n
        total = prior.between + noise
        trust = np.where(held_out & (total > 0), prior.between / np.where(total > 0, total, 1.0), 0.0)
        expected = trust * own + (1 - trust) * (x @ line.T)
        spared = np.where(held_out, trust * noise, prior.between)
        variance = spared + (1 - trust) ** 2 * unsure
    safe = usable & (expected > SAFE * np.sqrt(variance))
    safe[:, 0] = True
    expected[:, 0] = variance[:, 0] = 0.0
    candidate = np.where(safe, expected, -np.inf).argmax(1)
    rows = np.arange(len(candidate))
    return Choice(candidate, expected[rows, candidate], np.sqrt(variance[rows, candidate]))
