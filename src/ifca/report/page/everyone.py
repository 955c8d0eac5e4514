"""All clients in one table, and the story of each: data for the page's script, which shows a page of rows."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ifca.report.page.history import History
from ifca.report.page.metric import Metric, metric_of
from ifca.report.page.parts import Section
from ifca.report.palette import COLOURS
from ifca.report.read_run import RunFolder
from ifca.report.words import count

MOVES = 150_000  # changes of cluster in the page at most; of restless clients only the last ones are kept
LOSSES = 300_000  # losses in the page at most
FRAME = """<div class="everyone" data-name="{name}">
<div class="tools"><label>Search <input type="search" placeholder="client" autocomplete="off"></label>
<label>Cluster <select class="cluster"></select></label>
<label>Show <select class="which"></select></label>
<button type="button" class="save">Save as CSV</button></div>
<p class="found" role="status"></p>
<div class="scroll" tabindex="0" role="region" aria-label="All clients">
<table class="clients"><caption>{caption}</caption><thead></thead><tbody></tbody></table></div>
<div class="pages"><button type="button" class="back">Back</button><span></span>
<button type="button" class="next">Next</button></div>
<div class="story" aria-live="polite"></div>
<noscript><p>This table needs scripts; clients.csv in the run's folder has the same rows.</p></noscript>
<script type="application/json">{data}</script></div>"""


def everyone(run: RunFolder, past: History | None) -> Section | None:
    """None before the end, when no client's result is known."""
    if not run.finished:
        return None
    content = json.dumps(client_data(run, past), separators=(",", ":"), allow_nan=False)
    safe = content.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    hint = '<span class="screen">; choose one to see its story</span>'
    caption = Markup("{}{}").format(count(len(run.clients), "client"), Markup(hint))
    frame = Markup(FRAME).format(name=run.path.resolve().name, caption=caption, data=Markup(safe))
    return Section("everyone", "All clients", frame)


def client_data(run: RunFolder, past: History | None) -> dict[str, Any]:
    """Columns of numbers, a place per client in each; None where one is unknown."""
    metric, rows = metric_of(run), run.clients
    trained = run.summary["clients"]
    found: dict[str, Any] = {
        "ids": [row["id"] for row in rows],
        "cluster": [_cluster(row) for row in rows],
        "samples": [int(row["train_samples"] or 0) for row in rows],
        "tested": [int(row["test_samples"] or 0) for row in rows],
        "score": _column(rows, metric.key),
        "accuracy": metric.accuracy,
        "metric": metric.name,
        "colours": COLOURS,
        "trained": trained,
        "others": _others(run, metric),
        "clustered": not run.summary["method"]["personal"] and run.summary["k"] > 1,
    }
    if all(row.get("true_cluster", "") != "" for row in rows):
        found["true"] = [int(row["true_cluster"]) for row in rows]
    if any(row.get("personal_model") for row in rows):
        personal = metric.key.removesuffix("_train_rule") + "_personal"
        found["personal"] = [row.get("personal_model", "") for row in rows]
        found["personal_score"] = _column(rows, personal)
    if found["clustered"]:
        found["losses"] = _losses(rows)
    if past is not None and found["clustered"]:
        found["rounds"], found["final"] = past.rounds, past.final
        found["moves"] = moves(past.table)
    return found


def moves(table: NDArray[np.int16]) -> list[list[int]]:
    """Of each client: the column and the cluster it came to, one after the other; table: [m, columns]."""
    start = np.ones((len(table), 1), bool)
    came = np.concatenate([start, table[:, 1:] != table[:, :-1]], axis=1)
    most = max(2, MOVES // max(1, len(table)))
    found = []
    for i in range(len(table)):
        at = np.flatnonzero(came[i])[-most:]
        found.append([int(v) for pair in zip(at, table[i, at], strict=True) for v in pair])
    return found


def _others(run: RunFolder, metric: Metric) -> list[dict[str, Any]]:
    """What simple ways to train would do for each client."""
    found = []
    for name, words in (("global", "one model for all"), ("local", "on its own")):
        if name in run.baselines and metric.key != "train_loss":
            scores = metric.scores(run.baselines[name])
            values = [scores[row["id"]][0] if row["id"] in scores else None for row in run.clients]
            if any(value is not None for value in values):
                found.append({"name": words, "score": [_short(value) for value in values]})
    return found


def _losses(rows: list[dict[str, str]]) -> list[list[float | None]] | None:
    """Of each client under each model; None where that would be too much for a page."""
    names = [name for name in rows[0] if name.startswith("loss_")]
    if len(names) < 2 or len(names) * len(rows) > LOSSES:
        return None
    return [[_number(row[name]) for name in names] for row in rows]


def _cluster(row: dict[str, str]) -> int:
    return int(row.get("test_cluster_unseen") or row["cluster"])


def _column(rows: list[dict[str, str]], key: str) -> list[float | None]:
    return [_number(row.get(key, "")) for row in rows]


def _number(cell: str) -> float | None:
    return _short(float(cell)) if cell != "" else None


def _short(value: float | None) -> float | None:
    """Four digits are enough to look at."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")
