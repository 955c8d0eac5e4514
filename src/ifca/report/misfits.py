"""Whether the files of a run fit together: clients and clusters that one names are there in the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ifca.core.errors import Unreadable

Record = dict[str, Any]


def fitting_rounds(
    file: Path, rounds: list[Record], damage: str | None, clients: int, k: int
) -> tuple[list[Record], str | None]:
    """The rounds before the first that names clients or clusters which are not there; what is wrong.

    damage: of the line after these rounds; k: places for models; clients: 0, how many is not known.
    """
    for t, record in enumerate(rounds):
        wrong = _misfit(record, t, clients, k)
        if wrong is not None:
            return rounds[:t], f"{file}: line {t + 1} is damaged ({wrong}); the file was altered"
    return rounds, damage


def _misfit(record: Record, t: int, clients: int, k: int) -> str | None:
    who, identity, count = record["clients"], record["identity"], record["participants"]
    if record["round"] != t:
        return f"round must be {t}, got {record['round']}"
    if who is not None and len(who) != count:
        return f"clients names {len(who)} of {count} participants"
    if who is not None and (min(who, default=0) < 0 or (clients and max(who, default=0) >= clients)):
        return f"clients names some that are not among the {clients}"
    if identity is not None and len(identity) != count:
        return f"identity has {len(identity)} entries for {count} participants"
    if identity is not None and k and not -1 <= min(identity, default=0) <= max(identity, default=0) < k:
        return f"identity names clusters that are not among the {k}"
    if who is None and clients and count > clients:
        return f"{count} participants of {clients} clients"
    for name in ("cluster_sizes", "cluster_train_loss", "cluster_test_accuracy", "cluster_test_loss"):
        if k and len(record.get(name) or ()) > k:
            return f"{name} has {len(record[name])} entries for {k} clusters"
    return None


def fitting_clients(file: Path, rows: list[dict[str, str]], summary: dict[str, Any]) -> list[dict[str, str]]:
    """The rows of clients.csv, which are those of the summary's clients, in clusters that there are."""
    trained = sum(row["train_samples"] != "0" for row in rows)
    if len(rows) < summary["clients"] or trained > summary["clients"]:
        told = f"has {trained} clients that trained, the summary {summary['clients']}"
        raise Unreadable(f"{file}: {told}; the file was altered")
    models = max(
        1, summary["clients"] if summary["method"]["personal"] else summary["models"] or summary["k"]
    )
    for row in rows:
        for name in ("cluster", "test_cluster", "test_cluster_unseen"):
            if int(row.get(name) or -1) >= models:
                raise Unreadable(f"{file}: client {row['id']!r} is in {name} {row[name]}, of {models}")
    return rows
