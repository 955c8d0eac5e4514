"""How many clusters? What trainings with different k and seeds say, without labels and without test data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median, median_low

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ifca.core.metrics import adjusted_rand_index

SMALLEST = 1e-6  # of the largest loss: below it, losses count as equal
FALL = 0.05  # share of the loss that more clusters must save
AGREE = 0.5  # stability from which on the seeds are said to find the same clusters


@dataclass(frozen=True)
class Evidence:
    """What the trainings with one k came to, by seed."""

    k: int
    losses: tuple[float, ...]  # the clients' mean training loss
    live: tuple[int, ...]  # clusters that have clients
    stability: float | None

    @property
    def loss(self) -> float:
        """The median: one bad start among several does not speak against k."""
        return median(self.losses)

    @property
    def found(self) -> int:
        """Clusters found, in the median."""
        return median_low(self.live)


@dataclass(frozen=True)
class Verdict:
    """The number of clusters that the data supports, and why in a sentence or two."""

    k: int
    because: str


def stability(labels: Sequence[ArrayLike]) -> float | None:
    """Mean adjusted Rand index over the pairs of seeds; None: fewer than two. labels: [m] of each seed."""
    pairs = list(combinations(labels, 2))
    return float(np.mean([adjusted_rand_index(a, b) for a, b in pairs])) if pairs else None


def loss_silhouette(losses: ArrayLike, label: ArrayLike) -> float | None:
    """How far apart the clusters are in what the models lose on the clients: the silhouette, -1 to 1.

    losses: [m, k]; label: [m]. None: one cluster, or every client is alone.
    """
    own = np.asarray(label)
    live = np.unique(own)
    if not 1 < len(live) < len(own):
        return None
    from sklearn.metrics import silhouette_score  # here: see core/metrics.py

    return float(silhouette_score(loss_points(np.asarray(losses, np.float64)[:, live]), own))


def loss_points(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log losses, less each client's mean: a client with hard data loses more under every model. [m, k]."""
    finite = losses[np.isfinite(losses)]
    top = float(finite.max()) if len(finite) and finite.max() > 0 else 1.0
    known = np.clip(np.nan_to_num(losses, nan=top, posinf=top), SMALLEST * top, top)
    logs = np.log(known)
    result: NDArray[np.float64] = logs - logs.mean(1, keepdims=True)
    return result


def supported(evidence: Sequence[Evidence]) -> Verdict:
    """The largest number of clusters FOUND that pays and that the seeds agree on; the smallest needs neither.

    To pay is to have a training loss clearly below that of every smaller number. What counts is how many
    clusters were found, not how many were asked for: those that stay empty say that the data has no use for
    them. Neither test data nor true clusters are looked at.
    """
    best: dict[int, Evidence] = {}  # by number found, the training with the lowest loss
    for row in evidence:
        if row.found not in best or row.loss < best[row.found].loss:
            best[row.found] = row
    first, *more = sorted(best)
    chosen, rejected, why = first, [], ""
    for count in more:
        row, smaller = best[count], best[chosen]
        fall = 1 - row.loss / smaller.loss if smaller.loss > 0 else 0.0
        if row.stability is not None and row.stability < AGREE:
            rejected.append((count, f"differ from seed to seed (stability {row.stability:.2f})"))
        elif fall < FALL:
            less = "do not lower the training loss" if fall < 0.005 else f"lower it by only {fall:.1%}"
            rejected.append((count, less))
        else:
            why = f": they lower the clients' training loss by {fall:.0%} against {_clusters(chosen)}"
            why += "" if row.stability is None else f", with a stability of {row.stability:.2f} over seeds"
            chosen = count
    reasons = [f"{_clusters(count)} {reason}" for count, reason in rejected if count > chosen]
    return Verdict(
        chosen, f"The data supports {_clusters(chosen)}{why}." + _beyond(evidence, chosen, reasons)
    )


def _beyond(evidence: Sequence[Evidence], chosen: int, reasons: list[str]) -> str:
    """Why not more: a sentence, or nothing where there is nothing to say."""
    asked = [row.k for row in evidence if row.k > chosen and row.found <= chosen]
    if asked:
        ks = ", ".join(map(str, asked))
        reasons = [f"where more were asked for (k = {ks}), the others stayed empty", *reasons]
    if not reasons and chosen == max(row.k for row in evidence):
        return " That is the largest k asked for, so larger ones may be supported too."
    text = "; ".join(reasons)
    return f" {text[0].upper()}{text[1:]}." if text else ""


def _clusters(count: int) -> str:
    return "1 cluster" if count == 1 else f"{count} clusters"
