"""A trained federation as the numbers of a line."""

from __future__ import annotations

from typing import Any

import torch

from ifca.core.callbacks import Record
from ifca.core.metrics import cluster_accuracy
from ifca.runs.units.unit import Line
from ifca.training import Fitted

RULES = ("test_accuracy", "test_accuracy_train_rule")


def measured(fitted: Fitted) -> Line:
    """Accuracies by both rules (last round, and best of the rounds tested), clusters, bytes."""
    tested, history = fitted.test, fitted.history
    events = [event for record in history for event in record.get("events", [])]
    line: Line = {
        "train_loss": fitted.train_loss,
        "rounds": len(history),
        "bytes": int((fitted.state.bytes_down + fitted.state.bytes_up).sum()),
        "turns": sum(record["participants"] for record in history)
        + sum(event.get("asked_again", 0) for event in events),
        **clusters(fitted),
    }
    if tested is not None:
        last = (tested.accuracy(tested.paper_rule), tested.accuracy(tested.train_rule))
        for rule, accuracy in zip(RULES, last, strict=True):
            if accuracy is not None:
                line[rule] = accuracy
                line[f"best_{rule}"] = max(
                    [accuracy, *[record[rule] for record in history if record.get(rule) is not None]]
                )
    if events:
        line["events"] = [
            {name: event[name] for name in ("event", "cluster") if name in event} for event in events
        ]
    return {**line, **curves(history)}


def clusters(fitted: Fitted) -> Line:
    """How many models are used, and whether they are the true clusters."""
    if not fitted.job.method.clustered:
        return {}
    labels, true = fitted.labels, fitted.job.federation.train.true_cluster
    line: Line = {
        "live_clusters": len(set(labels.tolist())),
        "sizes": torch.bincount(labels, minlength=fitted.job.models).tolist(),
    }
    if true is not None:
        line["cluster_accuracy"] = cluster_accuracy(true, labels.numpy())
        line["all_right"] = line["cluster_accuracy"] == 1.0 and line["live_clusters"] == len(
            set(true.tolist())
        )
    return line


def curves(history: list[Record]) -> dict[str, Any]:
    """By round: test accuracy by both rules where tested, share of participants in the right cluster."""
    found: dict[str, Any] = {}
    for rule in RULES:
        tested = [
            [record["round"] + 1, round(record[rule], 5)]
            for record in history
            if record.get(rule) is not None
        ]
        if tested:
            found[rule.replace("test_accuracy", "accuracy_by_round")] = tested
    right = [round(record["cluster_accuracy"], 4) for record in history if "cluster_accuracy" in record]
    return found | ({"cluster_accuracy_by_round": _shortened(right)} if len(set(right)) > 1 else {})


def _shortened(values: list[float]) -> list[float]:
    """Without the repeats of the last value at the end: a curve goes on as it ends."""
    end = len(values)
    while end > 1 and values[end - 2] == values[-1]:
        end -= 1
    return values[:end]
