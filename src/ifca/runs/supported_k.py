"""How many clusters? What the referee said in trainings with the largest k; measures of all trainings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ifca.core.metrics import adjusted_rand_index

SMALLEST = 1e-6  # of the largest loss: below it, losses count as equal


@dataclass(frozen=True)
class Ended:
    """What a training with the largest k ended with, and what the referee said on the way."""

    seed: int
    live_clusters: int  # clusters that have clients
    events: list[dict[str, Any]] | None
    rounds: int

    def said(self, kind: str) -> list[dict[str, Any]]:
        """The referee's verdicts of one kind: kept or merged."""
        return [event for event in self.events or [] if event["event"] == kind]


@dataclass(frozen=True)
class Verdict:
    """The number of clusters that the data supports, and why in a few sentences."""

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
    from sklearn.metrics import silhouette_score  # here: it takes a second to import

    return float(silhouette_score(loss_points(np.asarray(losses, np.float64)[:, live]), own))


def loss_points(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log losses, less each client's mean: a client with hard data loses more under every model. [m, k]."""
    finite = losses[np.isfinite(losses)]
    top = float(finite.max()) if len(finite) and finite.max() > 0 else 1.0
    known = np.clip(np.nan_to_num(losses, nan=top, posinf=top), SMALLEST * top, top)
    logs = np.log(known)
    result: NDArray[np.float64] = logs - logs.mean(1, keepdims=True)
    return result


def supported(ended: Sequence[Ended], asked: int) -> Verdict:
    """What most seeds ended with, of equally many the smaller number; because of what the referee said.

    ended: by seed, of trainings with the same k, asked. Neither test data nor true clusters are looked at.
    """
    counts = Counter(one.live_clusters for one in ended)
    k = min(counts, key=lambda count: (-counts[count], count))
    mine = [one for one in ended if one.live_clusters == k]
    parts = [f"The data supports {_clusters(k)}: {_from_seeds(counts, k, asked)}", *_proof(mine, k)]
    if k == asked:
        parts.append("That is the largest k asked for, so larger ones may be supported too")
    return Verdict(k, " ".join(f"{part}." for part in parts))


def _from_seeds(counts: Counter[int], k: int, asked: int) -> str:
    """Which number the referee left from how many seeds."""
    seeds, found = counts.total(), f"asked for at most {asked}, the referee left {k}"
    if seeds == 1:
        return found
    if len(counts) == 1:
        return f"{found} from each of {seeds} seeds"
    others = ", ".join(f"{count} from {n}" for count, n in sorted(counts.items()) if count != k)
    return f"{found} from {counts[k]} of {seeds} seeds ({others})"


def _proof(mine: Sequence[Ended], k: int) -> list[str]:
    """The evidence of the closest calls among the seeds that ended with k clusters."""
    kept = [event for one in mine for event in one.said("kept")]
    merged = [event for one in mine for event in one.said("merged")]
    parts = []
    if k > 1 and kept:
        parts.append(f"One model for the closest two of them {_costs(max(kept, key=_p))}")
    elif k > 1:
        parts.append(f"It had not decided when the {mine[0].rounds} rounds were over, so try more of them")
    if merged:
        parts.append(f"Other groups became one: one model for two of them {_costs(min(merged, key=_p))}")
    return parts


def _costs(event: dict[str, Any]) -> str:
    shown = f"p = {event['p']:.2g}, level {event['alpha']:g} a look, {event['samples']} samples set aside"
    if event["event"] == "kept":
        return f"costs their clients {event['loses']:.2g} more a sample ({shown})"
    if event["loses"] > 0:
        return f"costs their clients {event['loses']:.2g} more a sample, not beyond doubt ({shown})"
    return f"costs their clients nothing ({shown})"


def _p(event: dict[str, Any]) -> float:
    return float(event["p"])


def _clusters(count: int) -> str:
    return "1 cluster" if count == 1 else f"{count} clusters"
