"""How clients are served: the worst tenth, those never seen, and who would be better off by another method.

A client is served by the model that it chose on its training data; one that was never in training by the
model that one half of its data chose, scored on the other half.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ifca.core.metrics import served_worse, worst_tenth
from ifca.methods import facts_of
from ifca.runs.clients_table import read_clients
from ifca.training import Fitted
from ifca.training.evaluate import Evaluation

Summary = dict[str, Any]
Table = list[dict[str, str]]
"""The rows of clients.csv."""
LEVEL = 0.01  # of all clusters of a run against one simple method


def served_numbers(fitted: Fitted) -> dict[str, Any]:
    """The part of a summary about single clients; null where a number is unknown."""
    unseen = None if fitted.unseen is None else fitted.unseen.test
    accuracies, losses = _served(fitted)
    numbers: dict[str, Any] = {
        "test_accuracy_worst_tenth": worst_tenth(accuracies, higher_is_better=True),
        "test_loss_worst_tenth": worst_tenth(losses, higher_is_better=False),
        "test_clients_unseen": 0 if unseen is None else len(unseen.sizes),
        "test_samples_unseen": 0 if unseen is None else int(unseen.sizes.sum()),
        "test_accuracy_unseen": None if unseen is None else unseen.accuracy(unseen.train_rule),
        "test_loss_unseen": None if unseen is None else unseen.mean_loss(unseen.train_rule),
        "worse_than": None,  # known where several methods are compared
    }
    if unseen is not None and unseen.metrics_train_rule:
        numbers["test_metrics_unseen"] = unseen.mean_metrics(unseen.metrics_train_rule)
    return numbers


def _served(fitted: Fitted) -> tuple[list[float], list[float]]:
    """Test accuracy and test loss of each client that has them."""
    unseen = None if fitted.unseen is None else fitted.unseen.test
    parts = [part for part in (fitted.test, unseen) if part is not None]
    accuracies = [one for part in parts if part.classification for one in _known(part, _accuracy(part))]
    return accuracies, [one for part in parts for one in _known(part, part.loss(part.train_rule))]


def _accuracy(test: Evaluation) -> Tensor:
    return test.correct(test.train_rule) / test.sizes


def _known(test: Evaluation, values: Tensor) -> list[float]:
    found: list[float] = values[(test.train_rule >= 0) & torch.isfinite(values)].tolist()
    return found


def compared(runs: list[tuple[Path, Summary]]) -> dict[str, dict[str, Any]]:
    """Algorithm -> simple algorithm -> the clients that the first serves worse; runs: folder and summary.

    A simple algorithm looks for no clusters: one model for all, or one for each client.
    """
    tables = {summary["algorithm"]: read_clients(folder) for folder, summary in runs}
    grouped = {summary["algorithm"] for _, summary in runs if _facts(summary)["clustered"]}
    kind = "accuracy" if any(_scores(rows, "accuracy") for rows in tables.values()) else "loss"
    scores = {name: _scores(rows, kind) for name, rows in tables.items()}
    simple = [summary["algorithm"] for _, summary in runs if not _facts(summary)["clustered"]]
    return {
        name: {
            other: _against(mine, scores[other], higher_is_better=kind == "accuracy")
            | ({"clusters": spoiled(tables[name], mine, scores[other], kind)} if name in grouped else {})
            for other in simple
            if other != name
        }
        for name, mine in scores.items()
    }


def _facts(summary: Summary) -> dict[str, Any]:
    """What is known of a run's method; summaries of older versions do not say."""
    return summary.get("method") or facts_of(summary["algorithm"])


def _scores(rows: Table, kind: str) -> dict[str, float]:
    """Client -> its test accuracy or loss, of those that have it."""
    cells = {row["id"]: row.get(f"test_{kind}_train_rule") or row.get(f"test_{kind}_unseen") for row in rows}
    values = {name: float(cell) for name, cell in cells.items() if cell}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _against(mine: dict[str, float], other: dict[str, float], *, higher_is_better: bool) -> dict[str, Any]:
    both = len(mine.keys() & other.keys())
    who = served_worse(mine, other, higher_is_better=higher_is_better)
    return {"clients": both, "worse": len(who), "share": len(who) / both if both else None, "who": who}


def spoiled(
    rows: Table, mine: dict[str, float], other: dict[str, float], kind: str
) -> list[dict[str, float | int]]:
    """Clusters whose clients another method serves better, by a sign test at LEVEL over their number."""
    from scipy.stats import binomtest  # here: it takes a second to import

    cluster = {row["id"]: int(row["cluster"]) for row in rows}
    unlike = [name for name in mine if name in other and mine[name] != other[name]]  # a tie says nothing
    found, clusters = [], sorted(set(cluster.values()))
    worse = set(served_worse(mine, other, higher_is_better=kind == "accuracy"))
    for j in clusters:
        own = [name for name in unlike if cluster[name] == j]
        lost = sum(name in worse for name in own)
        p = float(binomtest(lost, len(own), alternative="greater").pvalue) if own else 1.0
        if p <= LEVEL / len(clusters):
            found.append({"cluster": j, "clients": len(own), "worse": lost, "p": p})
    return found
