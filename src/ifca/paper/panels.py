"""The four panels of the paper's figure of success probabilities: their points, steps and sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

RS, SIGMAS = (0.1, 0.25, 0.5, 0.75, 1.0), (0.0, 0.1, 0.2, 0.4)


@dataclass(frozen=True)
class Point:
    """One point of a curve."""

    m: int
    n: int
    separation: float
    sigma: float
    name: str

    @property
    def threshold(self) -> float:
        """Success is a distance of at most this (D2)."""
        return 0.6 * self.sigma if self.sigma else 0.001


@dataclass(frozen=True)
class Panel:
    """A panel at full size, or scaled down."""

    k: int
    points: tuple[Point, ...]
    steps: tuple[float, ...]
    ours: tuple[str, ...]  # points at which the default algorithm is tried, with one start and step
    step: float  # that step
    dimension: int = 1000
    starts: int = 10
    rounds: int = 300

    def largest_step(self, m: int, n: int) -> float:
        """With which the k clusters, once found, converge: below 2 / L, and L as wide matrices have it."""
        spread = 2 / self.k * (1 + math.sqrt(self.k * self.dimension / (m * n))) ** 2
        return max((step for step in self.steps if step * spread < 2), default=min(self.steps))


def against_r(m: int, n: int) -> tuple[Point, ...]:
    """Panels (a) and (b): a curve for each sigma."""
    return tuple(Point(m, n, r, s, f"sigma={s:g} R={r:g}") for s in SIGMAS for r in RS)


def against_m(separation: float, ms: tuple[int, ...], ns: tuple[int, ...]) -> tuple[Point, ...]:
    """Panels (c) and (d): a curve for each n."""
    return tuple(Point(m, n, separation, 0.1, f"n={n} m={m}") for n in ns for m in ms)


STEPS = {2: (0.01, 0.1, 1.0), 4: (0.5, 1.0, 2.0)}
MIDDLE = {2: 0.1, 4: 1.0}
NS, QUICK_NS = (50, 100, 200), (25, 50, 100)
MS = {2: (50, 70, 100, 150, 200, 300, 400), 4: (100, 200, 300, 400, 800)}


def panels(quick: bool) -> dict[str, Panel]:
    """The four of them; quick: d = 100 instead of 1000, a fifth of the clients, half of the samples."""
    share, half, ns = (5, 2, QUICK_NS) if quick else (1, 1, NS)
    points = {
        "synthetic-a": (2, against_r(100 // share, 100 // half)),
        "synthetic-b": (4, against_r(400 // share, 100 // half)),
        "synthetic-c": (2, against_m(0.1, tuple(m // share for m in MS[2]), ns)),
        "synthetic-d": (4, against_m(0.5, tuple(m // share for m in MS[4]), ns)),
    }
    found = {}
    for name, (k, some) in points.items():
        ours = tuple(p.name for p in some if p.sigma == 0.1 and p.n == 100 // half)
        panel = Panel(k, some, STEPS[k], ours, MIDDLE[k])
        found[name] = replace(panel, dimension=100, starts=3) if quick else panel
    return found
