"""How far the models are from each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import Unreadable
from ifca.core.metrics import distances
from ifca.report.page.parts import Section, figure, paragraph, table
from ifca.report.read_run import RunFolder
from ifca.report.words import number
from ifca.training.checkpoint import load_tensors
from ifca.training.checkpoint_header import check_models

FILES = ("models.safetensors", "checkpoint.safetensors")


def model_distances(run: RunFolder, folder: Path) -> Section | None:
    """Euclidean distances between the models' parameters; folder: where the models are."""
    if run.summary["method"]["personal"] or run.summary["k"] == 1:
        return None
    title = "How different the models are"
    try:
        found = _measured(folder)
    except Unreadable as reason:
        return Section("models", title, paragraph(f"They cannot be compared: {reason}."))
    if found is None:
        return Section("models", title, paragraph("There are no two models to compare yet."))
    places, far = found
    pairs = [(far[a, b], places[a], places[b]) for a in range(len(far)) for b in range(a)]
    near, wide = min(pairs), max(pairs)
    top = float(far.max()) or 1.0
    rows = [
        [f"model {j}", *[number(float(d)) if d else "0" for d in row]]
        for j, row in zip(places, far, strict=True)
    ]
    shades = [[0.8 * float(d) / top for d in row] for row in far]
    matrix = table(
        ["", *[f"model {j}" for j in places]], rows, caption="Distance between models", shades=shades
    )
    text = "Distance between the models' parameters; models that are close predict alike. "
    if len(pairs) == 1:
        text += f"Models {near[2]} and {near[1]} are {number(near[0])} apart."
    else:
        text += f"Closest are models {near[2]} and {near[1]} ({number(near[0])}), "
        text += f"furthest apart {wide[2]} and {wide[1]} ({number(wide[0])})."
    return Section("models", title, figure(matrix, ""), text)


def _measured(folder: Path) -> tuple[list[int], NDArray[np.float64]] | None:
    file = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if file is None:
        return None
    tensors = load_tensors(file)[0]
    models = {n: v for n, v in tensors.items() if n.startswith("theta.")} or tensors
    check_models(file, models, len(next(iter(models.values()), ())))
    first = next(iter(models.values())).flatten(1)[:, 0]
    there = ~first.isnan()  # older versions wrote NaN at places without a model
    if int(there.sum()) < 2:
        return None
    kept = {name: value[there].float() for name, value in models.items()}
    return list(range(int(there.sum()))), distances(kept, kept)
