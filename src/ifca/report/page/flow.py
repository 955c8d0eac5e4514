"""How clients move between clusters: bands from stop to stop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from ifca.report.page.axes import SIZE, plot, spread
from ifca.report.palette import colour


def flow(stops: Sequence[tuple[str, Sequence[int]]], k: int, *, label: str) -> Markup:
    """Bands of clients from cluster to cluster: (name, cluster of each client) at a few stops."""
    m, gap, bar = len(stops[0][1]), 0.03 * SIZE, 0.018 * SIZE
    room = SIZE - gap * (k - 1)
    tables = [np.asarray(labels) for _, labels in stops]
    tops = []
    for table in tables:
        sizes = np.bincount(table[table >= 0], minlength=k) * room / max(1, m)
        tops.append([float(sizes[:j].sum() + gap * j) for j in range(k)])
    places = [(SIZE - bar) * i / max(1, len(stops) - 1) for i in range(len(stops))]
    shapes = Markup("")
    for i in range(len(stops) - 1):
        used, taken = list(tops[i]), list(tops[i + 1])
        a, b = places[i] + bar, places[i + 1]
        for source in range(k):
            for target in range(k):
                count = int(((tables[i] == source) & (tables[i + 1] == target)).sum())
                if count:
                    thick = count * room / m
                    shapes += _ribbon(a, b, used[source], taken[target], thick, colour(source), count)
                    used[source] += thick
                    taken[target] += thick
    for place, table, top in zip(places, tables, tops, strict=True):
        for j in range(k):
            tall = int((table == j).sum()) * room / max(1, m)
            if tall:
                shapes += Markup(
                    '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>'
                ).format(place, top[j], bar, tall, colour(j))
    x = [(i / max(1, len(stops) - 1), name) for i, (name, _) in enumerate(stops)]
    last = np.bincount(tables[-1][tables[-1] >= 0], minlength=k) * room / max(1, m)
    y = [(1 - (tops[-1][j] + last[j] / 2) / SIZE, f"cluster {j}") for j in range(k) if last[j]]
    return plot(shapes, label=label, x=x, y=spread(y), y_title="", height="tall", right=True, grid=False)


def _ribbon(a: float, b: float, y: float, z: float, thick: float, fill: str, count: int) -> Markup:
    middle = (a + b) / 2
    shape = (
        f"M{a:.1f},{y:.1f}C{middle:.1f},{y:.1f} {middle:.1f},{z:.1f} {b:.1f},{z:.1f}"
        f"L{b:.1f},{z + thick:.1f}"
        f"C{middle:.1f},{z + thick:.1f} {middle:.1f},{y + thick:.1f} {a:.1f},{y + thick:.1f}Z"
    )
    return Markup('<path d="{}" fill="{}" class="ribbon"><title>{:,} clients</title></path>').format(
        shape, fill, count
    )
