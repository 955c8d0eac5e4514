"""Who was in which cluster, round by round: what the figures of clusters are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ifca.report.read_run import RunFolder


@dataclass(frozen=True)
class History:
    """Every client's last known cluster after each round, and at the end."""

    table: NDArray[np.int16]  # [m, T], or [m, T + 1] with the final estimate; -1: has not chosen yet
    final: bool  # whether the last column is the estimate under the returned models
    changes: NDArray[np.int64]  # [columns] clients whose cluster differs from the column before
    order: NDArray[np.int64]  # [m] clients by true or last cluster, restless ones last in each
    group: list[str]  # [m] what clients are grouped by, in that order
    by_truth: bool

    @property
    def rounds(self) -> int:
        """Rounds seen."""
        return int(self.table.shape[1]) - self.final

    def column(self, c: int) -> str:
        """The name of a column."""
        return "end" if self.final and c == self.rounds else f"round {c + 1}"

    def last_change(self) -> int | None:
        """The last column in which a client moved."""
        moved = np.flatnonzero(self.changes)
        return int(moved[-1]) if len(moved) else None


def history(run: RunFolder) -> History | None:
    """None where clients have no clusters, or nothing has happened yet."""
    if not run.rounds or run.rounds[0]["identity"] is None:
        return None
    table = _filled(run.identities())
    trained = run.clients[: run.summary["clients"]]
    if trained:
        end = np.array([int(row["cluster"]) for row in trained], np.int16)
        table = np.concatenate([table, np.where(end >= 0, end, table[:, -1])[:, None]], axis=1)
    moved = (table[:, 1:] != table[:, :-1]) & (table[:, :-1] >= 0)
    restless = moved.sum(1)
    truth = [row["true_cluster"] for row in trained]
    by_truth = bool(truth) and all(truth)
    group = [int(c) for c in truth] if by_truth else table[:, -1].astype(int).tolist()
    order = np.lexsort(np.stack([restless, table[:, -1], np.array(group)]))
    names = [str(group[i]) for i in order]
    return History(table, bool(trained), np.concatenate([[0], moved.sum(0)]), order, names, by_truth)


def _filled(table: NDArray[np.int16]) -> NDArray[np.int16]:
    """Who did not take part keeps its last choice."""
    table = table.copy()
    for t in range(1, table.shape[1]):
        unknown = table[:, t] < 0
        table[unknown, t] = table[unknown, t - 1]
    return table
