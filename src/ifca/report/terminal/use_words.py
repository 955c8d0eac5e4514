"""What 'ifca assign' and 'ifca predict' say of one client, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SHOWN = 10  # rows of predictions
QUALITY = {"auroc": "AUROC", "f1": "F1", "log_loss": "log loss", "mae": "MAE", "rmse": "RMSE", "r2": "R2"}


def assignment_lines(found: dict[str, Any]) -> Iterator[str]:
    """A client's loss under each model, then its cluster and how far that is ahead of the second."""
    for j, loss in enumerate(found["losses"]):
        if loss is not None:  # else a place without a model
            yield f"{'->' if j == found['cluster'] else '  '} cluster {j}: loss {loss:.4f}"
    ahead = ""
    if found["margin"] is not None:
        errors = found["margin_in_errors"]
        sure = "" if errors is None else f", {errors:.1f} standard errors"
        ahead = f", {found['margin']:.4f} ahead of cluster {found['second']}{sure}"
    yield f"{found['client']} belongs to cluster {found['cluster']}{ahead}"


def prediction_lines(told: list[dict[str, Any]]) -> Iterator[str]:
    """Which model served each client and how well; of many clients how many, by cluster."""
    if len(told) == 1:
        one = told[0]
        model = "its own model" if one["cluster"] is None else f"model of cluster {one['cluster']}"
        yield f"{one['client']}: {one['samples']} samples, {model}"
        yield from quality_lines(one)
        return
    for j in sorted({one["cluster"] for one in told}, key=lambda j: -1 if j is None else j):
        mine = [one for one in told if one["cluster"] == j]
        samples = sum(one["samples"] for one in mine)
        known = [one for one in mine if one.get("accuracy") is not None]
        n = sum(one["samples"] for one in known)
        right = sum(one["accuracy"] * one["samples"] for one in known)
        score = f", accuracy {100 * right / n:.2f} % on their labels" if n else ""
        clients = "1 client" if len(mine) == 1 else f"{len(mine)} clients"
        model = "models of their own" if j is None else f"model of cluster {j}"
        yield f"{model}: {clients}, {samples} samples{score}"


def quality_lines(report: dict[str, Any]) -> list[str]:
    """How good predictions are by the client's labels; where it was personalised: before and after."""
    if "before" not in report:
        return [f"on these labels: {_told(report)}"] if "loss" in report else []
    before = f"cluster's model, on held-out samples: {_told(report['before'])}"
    if report["chosen"] == "served":
        return [before, "nothing else was surely better, so it stays with this model"]
    return [before, f"chosen, on the same samples:         {_told(report['after'])} ({report['chosen']})"]


def first_rows(table: str) -> list[str]:
    """The head of a table in CSV, and how many rows are left out."""
    lines = table.splitlines()
    more = len(lines) - SHOWN - 1
    return [*lines[: SHOWN + 1], f"... {more} more; --out FILE.csv writes all" if more > 0 else ""]


def _told(quality: dict[str, Any]) -> str:
    accuracy = quality["accuracy"]
    told = f"loss {quality['loss']:.4f}" + ("" if accuracy is None else f", accuracy {100 * accuracy:.2f} %")
    more = quality.get("quality") or {}
    named = [f"{word} {more[name]:.4g}" for name, word in QUALITY.items() if more.get(name) is not None]
    return ", ".join([told, *named])
