"""What distinguishes a cluster, in words: from differences.json of the run's folder."""

from __future__ import annotations

from typing import Any, cast

from ifca.core.errors import Unreadable
from ifca.data.formats.json_file import read_json
from ifca.report.read_run import RunFolder
from ifca.report.words import number, percent, signed
from ifca.runs.differences import DIFFERENCES, SMALLEST
from ifca.runs.differences_schema import DifferencesFile

Differences = dict[str, Any]
PULL = 0.05
"""The least difference of pulls that is told of: of the probability, or of the targets' spread."""
LEAN = 1.1
"""The least growth of the loss without a feature that counts as leaning on it."""
TOLD = 3
"""Sentences about samples on a card at most, and as many about the model."""


def read_differences(run: RunFolder) -> Differences | None:
    """None in older folders, in those of a federation's server, and where there is one cluster."""
    file = run.path / DIFFERENCES
    if not run.finished or not file.is_file() or any(one.startswith(f"{file}: ") for one in run.damage):
        return None
    try:
        found = cast(Differences, read_json(file, DifferencesFile))
    except Unreadable:  # of an older version: nothing vouches for it
        return None
    k = len(found["clusters"])
    every = [*found["label"], *found.get("features", [])]
    fits = all(len(one["means"]) == k and one["spread"] > 0 for one in every)
    return found if k > 1 and fits else None


def label_of(run: RunFolder) -> str:
    """The name of what is predicted, where the data have one."""
    data = (run.summary.get("config") or {}).get("data", {})
    label = data.get("label") or ""
    return label if isinstance(label, str) else ", ".join(map(str, label))


def name_of(run: RunFolder, kind: str) -> str:
    """'class 1' or 'the target' in the data's own words."""
    label = label_of(run)
    if kind.startswith("class "):
        classes = run.summary.get("class_names")
        value = str(classes[int(kind.split()[1])]) if classes else kind.split()[1]
        return f"{label} = {value}" if label else value if classes else kind
    return label or kind


def traits(run: RunFolder, found: Differences, j: int) -> list[str]:
    """What stands out of the samples of cluster j's clients, and of its model, in sentences."""
    here, k = found["clusters"].index(j), len(found["clusters"])
    told = []
    for one in compared(run, found):
        own, others = _split(one["means"], here)
        if abs(own - others) >= SMALLEST * one["spread"]:
            told.append((abs(own - others) / one["spread"], _mean_words(one, own, others, k)))
    best = [text for _, text in sorted(told, reverse=True)[:TOLD]]
    return [*best, *_model_words(run, found, here, k)]


def compared(run: RunFolder, found: Differences) -> list[dict[str, Any]]:
    """Features and labels whose means differ between clusters, the most different first."""
    labels = [one | {"name": name_of(run, one["name"])} for one in found["label"]]
    if [one["name"] for one in found["label"]] == ["class 0", "class 1"] and _mirrored(found["label"]):
        labels = labels[1:]  # of two classes one says it all
    return sorted([*found.get("features", []), *labels], key=lambda one: -one["gap"])


def _mirrored(two: list[dict[str, Any]]) -> bool:
    pairs = zip(two[0]["means"], two[1]["means"], strict=True)
    return all(abs(a + b - 1) < 1e-9 for a, b in pairs)


def _split(values: list[float], here: int) -> tuple[float, float]:
    """The cluster's own value, and the mean of the others'."""
    others = [value for place, value in enumerate(values) if place != here]
    return values[here], sum(others) / len(others)


def _elsewhere(k: int) -> str:
    return "in the other cluster" if k == 2 else "elsewhere"


def _mean_words(one: dict[str, Any], own: float, others: float, k: int) -> str:
    name = one["name"]
    if one["share"]:
        more = "more often" if own > others else "less often"
        return f"{name} {more}: {percent(own, 0)}, against {percent(others, 0)} {_elsewhere(k)}"
    higher = "Higher" if own > others else "Lower"
    return f"{higher} {name}: {plain(own)} on average, against {plain(others)} {_elsewhere(k)}"


def plain(value: float) -> str:
    """Three digits; large ones in full."""
    if 1000 <= abs(value) < 1e6:
        return signed(f"{value:,.0f}")
    return signed(f"{value:.3g}") if 1e-3 <= abs(value) < 1000 or not value else signed(number(value))


def _model_words(run: RunFolder, found: Differences, here: int, k: int) -> list[str]:
    uses = found.get("uses")
    if not uses:
        return []
    if uses["answer"] is None:
        leaning = sorted(uses["features"], key=lambda one: -one["leans"][here])
        kept = [one["name"] for one in leaning if one["leans"][here] >= LEAN][:TOLD]
        return [f"Its model leans most on {', '.join(kept)}"] if kept else []
    told = []
    for one in uses["features"]:
        own, others = _split(one["pulls"], here)
        if abs(own - others) >= PULL * uses["spread"]:
            told.append(f"{_pull_words(run, uses, one, own)}; {_change(uses, others)} {_elsewhere(k)}")
    return told[:TOLD]


def _pull_words(run: RunFolder, uses: dict[str, Any], one: dict[str, Any], own: float) -> str:
    """What a feature does to the answer in this cluster: raises it, or lowers it."""
    what = one["name"] if one["two_valued"] else f"A higher {one['name']}"
    verb = "raises" if own > 0 else "lowers"
    if uses["answer"] == "target":
        return f"{what} {verb} {name_of(run, 'the target')} here ({_change(uses, own)})"
    return f"{what} {verb} the chance of {name_of(run, uses['answer'])} here ({_change(uses, own)})"


def _change(uses: dict[str, Any], value: float) -> str:
    plus = "+" if value > 0 else ""
    if uses["answer"] == "target":
        return plus + plain(value)
    return f"{plus}{signed(f'{100 * value:.0f}')} points"
