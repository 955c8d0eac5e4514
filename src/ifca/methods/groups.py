"""Do these points fall into groups? Asked of the clients' updates, to see two populations on one model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEWEST = 4  # points that can say anything


@dataclass(frozen=True)
class Groups:
    """A partition, and the distance of its two nearest groups in their own standard deviations."""

    label: Ints  # [p] the largest group is 0; of equal ones, that of the first point
    separation: float

    @property
    def sizes(self) -> list[int]:
        """Points by group."""
        return [int(n) for n in np.bincount(self.label)]

    def has_all(self, some: NDArray[np.bool_]) -> bool:
        """Whether every group is among some of the points [p]."""
        return len(set(self.label[some].tolist())) == len(self.sizes)


def find_groups(points: Floats, most: int) -> Groups | None:
    """The partition into as many groups as are clearly apart (at most so many), or None: there is one.

    k-means among the k - 1 main directions of the points, for k from the top down; accepted where every two
    groups are further apart than the halves of a single cloud would be.
    """
    for k in range(min(most, len(points) // 4), 1, -1):
        groups = cut(points, k)
        if groups is not None and groups.separation > clear(min(groups.sizes)):
            return groups
    return None


def clear(smallest: int) -> float:
    """The separation that the parts of a single cloud do not reach; small parts come closer, by chance."""
    return 3.8 + 10 / smallest


def cut(points: Floats, k: int) -> Groups | None:
    """The best partition of the points [p, q] into k groups, however close; None: too few points."""
    if len(points) < max(FEWEST, 2 * k):
        return None
    main = _main_directions(_short(points), k - 1)
    if not main.any():
        return None
    from sklearn.cluster import KMeans  # here: see core/metrics.py

    label = KMeans(k, n_init=10, random_state=0).fit(main).labels_.astype(np.int64)
    sizes = np.bincount(label, minlength=k)
    if sizes.min() < max(2, 0.02 * len(points)):  # single outliers are not a population
        return None
    first = [int(np.argmax(label == g)) for g in range(k)]
    order = np.lexsort((np.array(first), -sizes))
    return Groups(np.argsort(order)[label], _separation(main, label))


def _short(points: Floats) -> Floats:
    """Centred, and no point further out than twice the median: no single client decides."""
    centred = points - points.mean(0)
    length = np.linalg.norm(centred, axis=1)
    limit = 2 * np.median(length)
    shrink = np.minimum(1, limit / np.maximum(length, 1e-300))
    result: Floats = centred * shrink[:, None]
    result -= result.mean(0)
    return result


def _main_directions(points: Floats, count: int) -> Floats:
    left, size, _ = np.linalg.svd(points, full_matrices=False)
    result: Floats = left[:, :count] * size[:count]
    return result


def _separation(points: Floats, label: Ints) -> float:
    """The smallest, over pairs of groups, of the distance of their means in deviations along that line."""
    means = [points[label == a].mean(0) for a in range(label.max() + 1)]
    return min(
        _apart(points[label == a], points[label == b], means[a] - means[b])
        for a in range(len(means))
        for b in range(a)
    )


def _apart(one: Floats, other: Floats, between: Floats) -> float:
    length = float(np.linalg.norm(between))
    if length == 0:
        return 0.0
    a, b = one @ between / length, other @ between / length
    spread = (a.var() * len(a) + b.var() * len(b)) / (len(a) + len(b) - 2)
    return length / max(float(np.sqrt(spread)), 1e-12 * length)
