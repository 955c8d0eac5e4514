"""How good predictions are beyond the headline's number, in words: AUROC, F1, calibration; mean error, R²."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from ifca.report.page.parts import folded, paragraph, table
from ifca.report.page.traits import plain
from ifca.report.read_run import RunFolder
from ifca.report.words import percent, signed

CLUSTERS = 12  # rows of the table by cluster, at most
NAMES = {
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "f1": "F1",
    "log_loss": "log loss",
    "calibration_error": "calibration error",
    "mae": "mean absolute error",
    "rmse": "root mean squared error",
    "r2": "R²",
}
MEANINGS = {
    "auroc": "how often a sample of a class is given a higher chance of it than a sample of another class; "
    "1 is perfect, 0.5 is guessing",
    "f1": "how well each class is found without false alarms, the mean over classes; 1 is perfect",
    "log_loss": "how little chance was given to the right answers; 0 is perfect",
    "calibration_error": "how far the chances that are given lie from how often they come true; 0 is perfect",
    "mae": "how far a prediction is off on average, in the unit of the target",
    "rmse": "the same, but large errors count more",
    "r2": "the share of the differences between targets that predictions explain; 1 is perfect, "
    "0 is no better than always saying the mean",
}


def overall_of(summary: dict[str, Any]) -> dict[str, Any]:
    """Metrics over all test samples; nothing of runs without test data, and of older ones."""
    found: dict[str, Any] = (summary.get("quality") or {}).get("overall") or {}
    return found


def shown(name: str, value: float | None) -> str:
    """A metric's value as people write it."""
    if name in ("accuracy", "calibration_error") or value is None:
        return percent(value)
    return plain(value) if name in ("mae", "rmse") else signed(f"{value:.3f}")


def quality_tile(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The metric that says most beside the headline's number: (name, value, remark)."""
    found = overall_of(summary)
    if found.get("auroc") is not None:
        return [("AUROC", shown("auroc", found["auroc"]), "1 is perfect, 0.5 is guessing")]
    if found.get("mae") is None:
        return []
    explained = f"R² {shown('r2', found['r2'])}" if found["r2"] is not None else ""
    return [("mean error of a prediction", shown("mae", found["mae"]), explained)]


def quality_body(run: RunFolder) -> Markup:
    """A sentence on all test samples; folded: the same of each cluster, and what the names mean."""
    found = overall_of(run.summary)
    if not (text := _sentence(found)):
        return Markup("")
    names = [name for name in NAMES if found.get(name) is not None]
    rows = [["all clients", f"{found['samples']:,}", *[shown(name, found[name]) for name in names]]]
    clusters = run.summary["quality"]["clusters"] or []
    if 1 < len(clusters) <= CLUSTERS:
        tested = [one for one in clusters if one["samples"]]
        rows += [
            [f"cluster {o['cluster']}", f"{o['samples']:,}", *[shown(n, o.get(n)) for n in names]]
            for o in tested
        ]
    heads = ["test data of", "samples", *[NAMES[name] for name in names]]
    told = [Markup("<li>{}: {}.</li>").format(NAMES[n], MEANINGS[n]) for n in names if n in MEANINGS]
    inside = table(heads, rows, caption="How good predictions on test data are")
    inside += Markup("<ul>{}</ul>").format(Markup("").join(told))
    return paragraph(text) + folded("The same for each cluster, and what these words mean", inside)


def quality_rows(found: list[dict[str, Any]]) -> list[list[str]]:
    """Of several summaries: a row for each metric that the other rows do not have."""
    return [[NAMES[n], *[shown(n, overall_of(s).get(n)) for s in found]] for n in NAMES if n != "accuracy"]


def _sentence(found: dict[str, Any]) -> str:
    """Nothing where no metric is defined."""
    if found.get("mae") is not None:
        off = f"A prediction is off by {shown('mae', found['mae'])} on average"
        return f"{off} (root of the mean squared error: {shown('rmse', found['rmse'])}){_explained(found)}."
    if found.get("f1") is None:
        return ""
    parts = [f"F1 is {shown('f1', found['f1'])}", f"log loss {shown('log_loss', found['log_loss'])}"]
    if found["auroc"] is not None:
        parts = [f"AUROC is {shown('auroc', found['auroc'])} (0.5 would be guessing)", *parts]
    chances = f"the chances that models give are off by {100 * found['calibration_error']:.1f} points"
    return f"{', '.join(parts)}; {chances} on average."


def _explained(found: dict[str, Any]) -> str:
    if found["r2"] is None:
        return ""
    if found["r2"] < 0:
        return f"; R² is {shown('r2', found['r2'])}: always saying the mean would be better"
    return (
        f"; R² is {shown('r2', found['r2'])}: predictions explain {100 * found['r2']:.0f} % of the variance"
    )
