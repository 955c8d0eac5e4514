"""What distinguishes the clusters: what their samples differ in, and what their models do with it."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from markupsafe import Markup

from ifca.report.page.images import photograph
from ifca.report.page.parts import Section, figure, folded, paragraph, table
from ifca.report.page.traits import Differences, compared, label_of, name_of, plain, read_differences
from ifca.report.palette import colour
from ifca.report.read_run import RunFolder
from ifca.report.words import count, listed, percent, signed

MOST = 12
"""Clusters side by side."""


def distinguish(run: RunFolder) -> Section | None:
    """None where nothing is known of it."""
    found = read_differences(run)
    if found is None:
        return None
    body = paragraph(_sentence(run, found)) + _samples(run, found)
    if images := found.get("images"):
        body += _images(run, found, images)
    if found.get("uses"):
        body += _uses(run, found["clusters"][:MOST], found["uses"])
    return Section("distinguish", "What distinguishes the clusters", body)


def thumbnails(run: RunFolder, found: Differences, j: int, most: int = 4) -> Markup:
    """Some mean images of one cluster; nothing where samples are no images."""
    images = found.get("images")
    if not images or j not in found["clusters"]:
        return Markup("")
    kinds = _order(images)[:most]
    pictures = _pictures(images)[found["clusters"].index(j)]
    names = [name_of(run, images["kinds"][i]) for i in kinds if images["kinds"][i].startswith("class ")]
    numbers = [name.removeprefix("class ") for name in names]
    plural = "classes " if numbers != names and len(names) > 1 else ""
    what = f"Mean images of {plural}{listed(numbers if plural else names)}" if names else "Mean image"
    return Markup('<p class="about">{}</p><p class="thumbs">{}</p>').format(
        what, Markup("").join(_image(run, j, images["kinds"][i], pictures[i]) for i in kinds)
    )


def _sentence(run: RunFolder, found: Differences) -> str:
    label = label_of(run) or "the answer"
    if found.get("images"):
        return (
            "The mean of many images shows what they have in common; where clusters' means of one class look "
            "different, the same class looks different to their clients."
        )
    if "features" not in found:
        return "Clusters are compared by their labels: samples are neither a table nor images."
    names = [one["name"] for one in found["features"]]
    total = count(found["compared"], "feature")
    if names:
        share = f"{len(names)} of {total}" if len(names) < found["compared"] else f"all {total}"
        return (
            f"The clusters' samples differ in {share}, by at least 0.2 standard deviations and by more than "
            "clients of one cluster differ among themselves. The models show how differently features "
            "are used."
        )
    return (
        f"In none of {total} do the clusters' samples differ beyond what clients of one cluster differ among "
        f"themselves: what sets them apart is how {label} follows from the features, which their models show."
    )


def _samples(run: RunFolder, found: Differences) -> Markup:
    rows = compared(run, found)
    if not rows:
        return Markup("")
    live = found["clusters"][:MOST]
    cells, shades = [], []
    for one in rows:
        means = one["means"][: len(live)]
        show = (lambda v: percent(v, 0)) if one["share"] else plain
        cells.append([one["name"], *map(show, means), f"{one['gap']:.1f}"])
        low, high = min(means), max(means)
        shades.append([*[0.7 * (v - low) / ((high - low) or 1.0) for v in means], 0.0])
    heads = ["mean of", *[f"cluster {j}" for j in live], "difference in standard deviations"]
    return table(heads, cells, caption="What samples differ in", shades=shades)


def _uses(run: RunFolder, live: list[int], uses: dict[str, Any]) -> Markup:
    pulled = [] if uses["answer"] is None else uses["features"]
    rows = [[one["name"], *[_pull(uses, v) for v in one["pulls"][: len(live)]]] for one in pulled]
    leans = [[one["name"], *[f"{v:.2f}" for v in one["leans"][: len(live)]]] for one in uses["features"]]
    heads = ["feature", *[f"cluster {j}" for j in live]]
    kind = "matrix" if len(live) <= 4 else "list"
    caption = "Loss without the feature, as a multiple of the loss with it"
    lean = table(heads, leans, caption=caption, kind=kind)
    lean += paragraph(
        "Permutation importance: the feature's values are shuffled among the training samples of the "
        "cluster's own clients. 1 means that the cluster's model does not need the feature."
    )
    if not rows:
        return lean
    answer = name_of(run, "the target" if uses["answer"] == "target" else uses["answer"])
    what = answer if uses["answer"] == "target" else f"the chance of {answer}"
    body = table(heads, rows, caption=f"What each model does to {what} when a feature rises", kind=kind)
    body += paragraph(
        "Asked of all models on the same samples: the feature goes up by one standard deviation, or from no "
        "to yes, and everything else stays."
    )
    return body + folded("How much each model needs a feature", lean)


def _pull(uses: dict[str, Any], value: float) -> str:
    plus = "+" if value > 0 else ""
    return plus + (plain(value) if uses["answer"] == "target" else f"{signed(f'{100 * value:.0f}')} points")


def _order(images: dict[str, Any]) -> list[int]:
    """Classes first: the mean of everything says least."""
    return [*range(1, len(images["kinds"])), 0]


def _pictures(images: dict[str, Any]) -> Any:
    """[clusters, kinds, height, width, channels]"""
    return np.frombuffer(base64.b64decode(images["pixels"]), np.uint8).reshape(images["shape"])


def _image(run: RunFolder, j: int, kind: str, pixels: Any) -> Markup:
    name = name_of(run, kind) if kind.startswith("class ") else kind
    text = f"Mean image of {name} in cluster {j}"
    return Markup('<img src="{}" alt="{}" title="{}">').format(photograph(pixels), text, text)


def _images(run: RunFolder, found: Differences, images: dict[str, Any]) -> Markup:
    kinds, pictures = _order(images), _pictures(images)
    names = [images["kinds"][i] for i in kinds]
    heads = ["", *[name_of(run, name) if name.startswith("class ") else name for name in names]]
    rows: list[list[object]] = []
    for place, j in enumerate(found["clusters"][:MOST]):
        key = Markup('<i class="key" style="--key:{}"></i>cluster {}').format(colour(j), j)
        rows.append([key, *[_image(run, j, images["kinds"][i], pictures[place][i]) for i in kinds]])
    grid = table(heads, rows, caption="Mean images", kind="matrix images")
    return figure(
        grid, "Mean images of the clusters' training samples: of the classes that differ most, and of all."
    )
