"""A run's folder as data for tables and figures. Reads only; never trains."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput


@dataclass(frozen=True)
class RunFolder:
    """What a finished run left behind."""

    path: Path
    summary: dict[str, Any]
    rounds: list[dict[str, Any]]
    clients: list[dict[str, str]]
    baselines: dict[str, RunFolder]

    def identities(self) -> NDArray[np.int64]:
        """Cluster of each training client in each round: [m, T], -1 where it did not take part."""
        m = self.summary["clients"]
        table = np.full((m, len(self.rounds)), -1, np.int64)
        for t, record in enumerate(self.rounds):
            everybody = slice(len(record["identity"]))  # who joined later stands behind
            who = everybody if record["clients"] is None else record["clients"]
            table[who, t] = record["identity"]
        return table


def read_run(path: Path) -> RunFolder:
    """Read a finished run and its baselines."""
    for name in ("summary.json", "rounds.jsonl", "clients.csv"):
        if not (path / name).is_file():
            raise InvalidInput(f"{path}: has no {name}; is it a finished run? ('ifca resume {path}' goes on)")
    summary = json.loads((path / "summary.json").read_text())
    rounds = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    with (path / "clients.csv").open(newline="") as table:
        clients = list(csv.DictReader(table))
    done = [name for name, one in summary.get("baselines", {}).items() if "error" not in one]
    others = {name: read_run(path / "baselines" / name) for name in done}
    return RunFolder(path, summary, rounds, clients, others)
