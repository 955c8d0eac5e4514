"""Every client's loss under every model: what other models would do for it."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ifca.report.page.axes import Ticks, chosen, picture
from ifca.report.page.images import ROWS, shade_picture
from ifca.report.page.parts import Section, figure, paragraph, table
from ifca.report.page.people import LATER
from ifca.report.read_run import RunFolder
from ifca.report.words import count, number

MODELS = 30  # columns at most


def loss_matrix(run: RunFolder) -> Section | None:
    """Every client's loss under every model."""
    title = "What other models would do for each client"
    if run.summary["method"]["personal"] or run.summary["k"] == 1:
        return None
    if not run.clients:
        return Section("losses", title, paragraph(LATER))
    trained = run.clients[: run.summary["clients"]]
    k = sum(name.startswith("loss_") for name in trained[0])
    losses = np.array([[float(row[f"loss_{j}"] or "nan") for j in range(k)] for row in trained])
    label = np.array([int(row["cluster"]) for row in trained])
    live = [j for j in range(k) if np.isfinite(losses[:, j]).any()][:MODELS]
    known = np.isfinite(losses[:, live]).any(1) & (label >= 0)
    if len(live) < 2 or not known.any():
        return Section("losses", title, paragraph("There is only one model left to compare."))
    losses, label = losses[known][:, live], label[known]
    best = np.nanmin(losses, axis=1)
    excess = losses - best[:, None]
    scale = float(np.nanquantile(excess[excess > 0], 0.95)) if (excess > 0).any() else 1.0
    order = np.lexsort((best, label))
    rows = order[chosen(len(order), ROWS)]
    x: Ticks = [((c + 0.5) / len(live), str(j)) for c, j in enumerate(live)]
    sentence = _matrix_sentence(losses, len(label), len(rows))
    image = picture(
        shade_picture(excess[rows] / scale),
        label=f"Picture of {len(rows)} clients by {len(live)} models. {sentence}",
        x=x,
        y=_groups(label[rows]),
        y_title="columns: models",
        height=min(360, max(120, 3 * len(rows))),
        data={"of": "losses", "rows": np.flatnonzero(known)[rows].tolist(), "columns": live},
    )
    told = _best_off(losses, label, live)
    return Section("losses", title, figure(image, sentence) + _means(losses, label, live), told)


def _groups(labels: NDArray[np.int64]) -> Ticks:
    """Names beside the middles of runs of equal labels."""
    found: Ticks = []
    for j in sorted(set(labels.tolist())):
        inside = np.flatnonzero(labels == j)
        found.append((1 - (inside[0] + inside[-1] + 1) / 2 / len(labels), f"cluster {j}"))
    return found


def _matrix_sentence(losses: NDArray[np.float64], m: int, drawn: int) -> str:
    ranked = np.sort(losses, axis=1)
    ratio = float(np.nanmedian(ranked[:, 1] / np.maximum(ranked[:, 0], 1e-12)))
    text = "Rows are clients, columns are models: clear where a model is the client's best, "
    text += "the stronger the colour, the more it would lose with it."
    if drawn < m:
        text += f" Drawn are {drawn} of {m:,} clients."
    return f"{text} For half of the clients the second best has at least {ratio:.1f} times the best's loss."


def _best_off(losses: NDArray[np.float64], label: NDArray[np.int64], live: list[int]) -> str:
    own = np.array([losses[i, live.index(j)] if j in live else np.nan for i, j in enumerate(label.tolist())])
    right = int((own <= np.nanmin(losses, axis=1)).sum())
    return f"{right:,} of {count(len(label), 'client')} are with the model of their lowest training loss."


def _means(losses: NDArray[np.float64], label: NDArray[np.int64], live: list[int]) -> Markup:
    groups = sorted(set(label.tolist()))
    means = [[float(np.nanmean(losses[label == i, c])) for c in range(len(live))] for i in groups]
    low, top = min(min(row) for row in means), max(max(row) for row in means)
    rows = [
        [f"clients of cluster {i}", *[number(v) for v in row]] for i, row in zip(groups, means, strict=True)
    ]
    shades = [[0.8 * (value - low) / ((top - low) or 1.0) for value in row] for row in means]
    return table(["", *[f"model {j}" for j in live]], rows, caption="Mean training loss", shades=shades)
