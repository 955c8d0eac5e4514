"""From the rows of clients to their features and labels: fit the preparation, complain of cells, apply it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ifca.data.clients import Client
from ifca.data.column_statistics import ColumnStatistics, client_statistics, merged
from ifca.data.fit_preparation import fitted
from ifca.data.preparation import Preparation
from ifca.data.problems import Complain, refuse
from ifca.data.sources.columns import Columns, Rows, split


def clients_of(rows: Sequence[Rows], columns: Columns, complain: Complain = refuse) -> list[Client]:
    """Clients with features and labels as numbers, their test parts apart."""
    rows = [one for one in rows if _has_training_rows(one, complain)]
    if not rows:
        return []
    preparation = columns.preparation or fitted_to(rows, columns, complain)
    if preparation is None:
        return []
    rows = [one for one in rows if _has_columns(one, preparation, complain)]
    check_cells(rows, preparation, columns, complain)
    clients = []
    for one in rows:
        if not check_labels(one, preparation, complain):
            continue
        x, y = preparation.prepared(one.cells), preparation.labels(one.cells)
        client = Client(
            x,
            y,
            id=one.id,
            cluster=one.cluster,
            source=one.source,
            features=preparation.features,
            preparation=preparation,
        )
        clients.append(split(client, one.test))
    return clients


def fitted_to(rows: Sequence[Rows], columns: Columns, complain: Complain = refuse) -> Preparation | None:
    """The preparation by the training rows of all clients: by what each tells of them, added up."""
    unknown = [name for name in columns.taken_as if name not in rows[0].cells]
    where = file_of(rows)
    if unknown:
        complain(f"columns.{unknown[0]}: {where} has no such column (found: {', '.join(rows[0].cells)})")
    return fitted(
        merged(statistics_of(one) for one in rows),
        rows[0].label,
        columns.taken_as,
        task=columns.kind,
        classes=columns.classes,
        named=bool(columns.features),
        refuse_holes=columns.missing == "refuse",
        complain=lambda sentence: complain(f"{where}: {sentence}"),
    )


def statistics_of(rows: Rows, least: int = 1) -> dict[str, ColumnStatistics]:
    """What one client tells of its training rows; least: as of client_statistics."""
    train = np.flatnonzero(~rows.test)
    table = {name: cells.take(train) for name, cells in rows.cells.items()}
    return client_statistics(table, rows.label, least)


def check_cells(rows: Sequence[Rows], preparation: Preparation, columns: Columns, complain: Complain) -> None:
    """One complaint for a column with cells that cannot be used, naming the first and how many there are."""
    for column in preparation.used:
        number = column.kind == "number" and columns.taken_as.get(column.name) != "number"
        words, holes = _Bad(), _Bad()
        for one in rows:
            cells = one.cells[column.name]
            if number:
                words.add(one, cells.words, column.name)
            if preparation.refuse_holes:
                holes.add(one, cells.missing, column.name)
        advice = f'; columns.{column.name} = "number" takes such cells as missing'
        if words.count:
            what = f"holds {words.cell!r}, which is not a number{words.more}{advice}"
            complain(f"{words.place}: column {column.name} {what}")
        if holes.count:
            complain(
                f'{holes.place}: column {column.name} is empty{holes.more}; missing = "fill" fills such cells'
            )


class _Bad:
    """Bad cells of a column: how many, and where the first is."""

    def __init__(self) -> None:
        self.count, self.place, self.cell = 0, "", ""

    def add(self, rows: Rows, bad: NDArray[np.bool_], name: str) -> None:
        """Take the bad [n] cells of a client's column."""
        places = np.flatnonzero(bad).tolist()
        if places and not self.count:
            self.place = f"{rows.source.name}, {rows.source.row(places[0])}"
            self.cell = rows.cells[name].texts[places[0]]
        self.count += len(places)

    @property
    def more(self) -> str:
        """How many other cells are like the first."""
        return f" (and {self.count - 1} more cells of this column)" if self.count > 1 else ""


def _has_training_rows(rows: Rows, complain: Complain) -> bool:
    if rows.test.all():
        complain(f"{rows.source.name}: all rows are to test on, none is left to train on")
    return not rows.test.all()


def _has_columns(rows: Rows, preparation: Preparation, complain: Complain) -> bool:
    needed = (*(column.name for column in preparation.used), *preparation.label)
    missing = [name for name in needed if name not in rows.cells]
    if missing:
        found = ", ".join(rows.cells)
        complain(f"{rows.source.name}: has no column {missing[0]}, which the others have (found: {found})")
    return not missing


def check_labels(
    rows: Rows, preparation: Preparation, complain: Complain, labelled: NDArray[np.bool_] | None = None
) -> bool:
    """Whether all labels are of the kind that was found: targets, class numbers or known classes.

    labelled: [n] the rows that have one; None: all.
    """
    for name in preparation.label:
        cells = rows.cells[name]
        if preparation.class_names is not None:
            bad = preparation.labels(rows.cells) < 0
            what = f"is not one of the classes {', '.join(preparation.class_names[:10])}"
        elif preparation.regression:
            bad, what = cells.words, "is not a number"
        else:
            bad = ~np.isfinite(cells.numbers) | (cells.numbers != np.rint(cells.numbers))
            what = "is not a whole number"
        bad = bad if labelled is None else bad & labelled
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            more = f" (nor are {int(bad.sum()) - 1} more)" if bad.sum() > 1 else ""
            said = f"the label in {rows.source.row(i)} {what}: {cells.texts[i]!r}{more}"
            complain(f"{rows.source.name}: {said}")
            return False
    return True


def file_of(rows: Sequence[Rows]) -> Path:
    """The table of all rows, or the folder of their tables."""
    return rows[0].file if len({one.file for one in rows}) == 1 else rows[0].file.parent
