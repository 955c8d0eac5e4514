"""clients.csv: a row for each client; written here, and read here by all who need it."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ifca.core.errors import InvalidInput, Unreadable
from ifca.core.estimates import Score
from ifca.data.formats.csv_file import read_csv
from ifca.runs.personal_results import PERSONAL_COLUMNS, personal_cells

if TYPE_CHECKING:  # who only reads the table needs no torch
    from torch import Tensor

    from ifca.data import Clients
    from ifca.training import Fitted
    from ifca.training.personalise import Personalised

CLIENTS = "clients.csv"
COLUMNS = (
    *("id", "cluster", "true_cluster", "train_samples", "train_loss", "test_samples", "test_cluster"),
    *("test_loss", "test_accuracy", "test_accuracy_train_rule", "bytes_down", "bytes_up"),
)
"""In folders of every version."""
LATER = ("test_loss_train_rule",)
"""Missing in older folders."""
UNSEEN = ("test_samples_unseen", "test_cluster_unseen", "test_loss_unseen", "test_accuracy_unseen")
"""Where there are clients that were never in training: how the half that scores is served."""
NEEDED = ("cluster", "train_samples", "bytes_down", "bytes_up")
WHOLE = ("true_cluster", "test_samples", "test_cluster", *UNSEEN[:2], "personal_steps")
SHARES = ("test_accuracy", "test_accuracy_train_rule", UNSEEN[3])
WORDS = ("id", "personal_model")
_WHOLE = r"-?[0-9]{1,18}"
_NUMBER = r"-?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|inf)|nan"
ALTERED = "the file was altered"
WEIGHTS = {"test_accuracy_unseen": "test_samples_unseen", "test_loss_unseen": "test_samples_unseen"}
"""What a client's number weighs, where that is not its test samples."""


def clients_table(fitted: Fitted, personalised: Personalised | None = None) -> str:
    """A row per client: its cluster, its losses under all models, how well it is served, its bytes.

    personalised: what the training clients chose, in further columns.

    Clients that are only tested follow; their cluster is the one with the lowest loss on their test data.
    """
    federation, test, labels = fitted.job.federation, fitted.test, fitted.labels.tolist()
    m, columns = fitted.train.loss.shape
    tested, strangers = _test_columns(fitted)
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    metrics = [] if test is None else list(test.metrics)
    unseen = _unseen_cells(fitted)
    heads = [*COLUMNS, *LATER, *(UNSEEN if unseen else ()), *[f"loss_{j}" for j in range(columns)]]
    personal = None if personalised is None else personal_cells(personalised)
    heads += [f"test_{name}" for name in metrics]
    table.writerow([*heads, *(PERSONAL_COLUMNS if personal else ())])
    own, losses = fitted.own_loss.tolist(), _filled(fitted.train.loss)
    down, up = fitted.state.bytes_down.tolist(), fitted.state.bytes_up.tolist()
    for i, name in enumerate(federation.train.ids):
        start = [name, labels[i], _truth(federation.train, i), int(federation.train.sizes[i]), own[i]]
        (*served, loss), own_metrics = tested.get(i, ([""] * 6, [""] * len(metrics)))
        never = [""] * len(UNSEEN) if unseen else []
        row = [*start, *served, down[i], up[i], loss, *never, *losses[i], *own_metrics]
        table.writerow([*row, *(personal or [[]] * m)[i]])
    for i, ((*served, loss), own_metrics) in strangers.items():
        assert test is not None
        assert federation.test is not None
        start = [federation.test.ids[i], int(test.paper_rule[i]), _truth(federation.test, i), 0, ""]
        losses_here = _filled(test.scores.loss[i : i + 1])[0]
        half = unseen.get(i, [""] * len(UNSEEN)) if unseen else []
        nothing = [""] * len(PERSONAL_COLUMNS) if personal else []
        table.writerow([*start, *served, 0, 0, loss, *half, *losses_here, *own_metrics, *nothing])
    return out.getvalue()


def read_clients(directory: Path) -> list[dict[str, str]]:
    """The rows of a run's clients.csv, by column; a client that was only tested has 0 train_samples."""
    file = directory / CLIENTS
    if not file.is_file():
        raise InvalidInput(f"{directory}: has no {CLIENTS}; 'ifca resume {directory}' makes it")
    found = read_csv(file, ",", "utf-8")
    if missing := [name for name in COLUMNS if name not in found.names]:
        raise Unreadable(f"{file}: has no column {missing[0]}; {ALTERED}")
    if found.odd or len(set(found.names)) < len(found.names):
        where = (
            f", line {found.odd[0][0]}: has {found.odd[0][1]} cells" if found.odd else ": has a column twice"
        )
        raise Unreadable(f"{file}{where}; {ALTERED}")
    for name, cells in zip(found.names, zip(*found.rows, strict=True), strict=False):
        _check(file, name, cells, found.lines)
    rows = [dict(zip(found.names, row, strict=True)) for row in found.rows]
    if len({row["id"] for row in rows}) < len(rows):
        raise Unreadable(f"{file}: has a client twice; {ALTERED}")
    return rows


def _check(file: Path, name: str, cells: Sequence[str], lines: Sequence[int]) -> None:
    """Whole numbers, numbers and shares where they belong; nothing only where something may be missing."""
    if name in WORDS:
        return
    whole, needed, share = name in (*NEEDED, *WHOLE), name in NEEDED, name in SHARES
    kind = (_WHOLE if whole else _NUMBER) + ("" if needed else "|")
    numbers = re.fullmatch(f"(?:(?:{kind}) )*", " ".join([*cells, ""]))  # all of them at once
    if numbers and not (share and any(_beyond(cell) for cell in cells)):
        return
    for cell, line in zip(cells, lines, strict=True):
        if not re.fullmatch(kind, cell) or (share and _beyond(cell)):
            what = "a whole number" if whole else "a number from 0 to 1" if share else "a number"
            raise Unreadable(f"{file}, line {line}: {name} must be {what}, got {cell[:40]!r}; {ALTERED}")


def _beyond(share: str) -> bool:
    return share != "" and not math.isnan(value := float(share)) and not 0 <= value <= 1


def scores_of(rows: Iterable[dict[str, str]], key: str) -> dict[str, Score]:
    """Client -> its number in a column, and its weight; of those that have it."""
    weight = WEIGHTS.get(key, "test_samples") if key.startswith("test_") else ""
    found = {}
    for row in rows:
        if row.get(key, "") != "" and math.isfinite(value := float(row[key])):
            found[row["id"]] = value, float(row.get(weight) or 0) if weight else 1.0
    return {name: score for name, score in found.items() if score[1] > 0}


def _filled(losses: Tensor) -> list[list[Any]]:
    """Losses for a table; nothing where there is no model."""
    return [["" if math.isnan(loss) else loss for loss in row] for row in losses.tolist()]


def _truth(clients: Clients, i: int) -> int | str:
    return "" if clients.true_cluster is None else int(clients.true_cluster[i])


Cells = tuple[list[Any], list[Any]]
"""How a client is served, and its values of the user's own metrics."""


def _test_columns(fitted: Fitted) -> tuple[dict[int, Cells], dict[int, Cells]]:
    """The test cells of each training client, by its place, and of each client that is only tested."""
    import torch

    test, owner = fitted.test, fitted.job.federation.test_owner.tolist()
    if test is None:
        return {}, {}

    def share(rule: Tensor) -> list[Any]:
        right = (test.correct(rule) / test.sizes).tolist()
        return [
            value if test.classification and j >= 0 else ""
            for value, j in zip(right, rule.tolist(), strict=True)
        ]

    served, loss, sizes = (
        test.paper_rule.tolist(),
        test.loss(test.paper_rule).tolist(),
        test.sizes.long().tolist(),
    )
    chosen = zip(test.loss(test.train_rule).tolist(), test.train_rule.tolist(), strict=True)
    losses = [value if j >= 0 else "" for value, j in chosen]
    shares = share(test.paper_rule), share(test.train_rule)
    cells = zip(sizes, served, loss, *shares, losses, strict=True)
    own = _filled(torch.stack([*test.metrics.values()], 1)) if test.metrics else [[]] * len(sizes)
    rows = [(list(row), mine) for row, mine in zip(cells, own, strict=True)]
    known = {place: row for place, row in zip(owner, rows, strict=True) if place >= 0}
    return known, {i: row for i, row in enumerate(rows) if owner[i] < 0}


def _unseen_cells(fitted: Fitted) -> dict[int, list[Any]]:
    """The cells of UNSEEN by place among the test clients."""
    if fitted.unseen is None:
        return {}
    test = fitted.unseen.test
    right = (test.correct(test.train_rule) / test.sizes).tolist()
    columns = (
        test.sizes.long().tolist(),
        test.train_rule.tolist(),
        test.loss(test.train_rule).tolist(),
        right if test.classification else [""] * len(right),
    )
    return dict(zip(fitted.unseen.place.tolist(), map(list, zip(*columns, strict=True)), strict=True))
