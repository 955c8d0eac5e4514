"""In training clusters have the numbers of their places; in the end those with a model come first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BY_CLUSTER = ("cluster_sizes", "cluster_train_loss", "cluster_test_accuracy", "cluster_test_loss")
OF_EVENTS = ("cluster", "other", "into")


def new_numbers(places: Sequence[int], k: int) -> list[int]:
    """Place -> number: those of the final models in their order, then those that were given up."""
    final = set(places)
    order = [*places, *(place for place in range(k) if place not in final)]
    number = {place: j for j, place in enumerate(order)}
    return [number[place] for place in range(k)]


def renumbered(records: Sequence[dict[str, Any]], places: Sequence[int], k: int) -> list[dict[str, Any]]:
    """Records of rounds, with clusters by their final numbers. places: of each final model."""
    number = new_numbers(places, k)
    if number == list(range(k)):
        return list(records)
    return [_record(record, number) for record in records]


def renumbered_event(event: dict[str, Any], number: Sequence[int]) -> dict[str, Any]:
    """An event, with clusters by other numbers."""
    return event | {name: _number(event[name], number) for name in OF_EVENTS if name in event}


def _record(record: dict[str, Any], number: Sequence[int]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if record.get("identity") is not None:
        changed["identity"] = _number(record["identity"], number)
    for name in BY_CLUSTER:
        if record.get(name) is not None:
            places = [number.index(j) for j in range(len(number))]
            known = len(record[name])  # fewer where clients joined later, and more clusters are possible
            changed[name] = [record[name][place] for place in places if place < known]
    if record.get("events"):
        changed["events"] = [renumbered_event(event, number) for event in record["events"]]
    return record | changed


def _number(value: Any, number: Sequence[int]) -> Any:
    if isinstance(value, (list, tuple)):
        return [number[j] for j in value]
    return value if value is None else number[value]
