"""A run's folder as data for tables, figures and pages. Reads only; never trains."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.core.numbering import renumbered
from ifca.data.jsonl import read_jsonl
from ifca.methods import facts_of
from ifca.runs.clients_table import CLIENTS, read_clients

Record = dict[str, Any]
FILES = ("summary.json", "rounds.jsonl", CLIENTS)


@dataclass(frozen=True)
class RunFolder:
    """What a run left behind, or has so far."""

    path: Path
    summary: dict[str, Any]
    rounds: list[Record]
    clients: list[dict[str, str]]  # none before its end
    baselines: dict[str, RunFolder]
    faults: list[Record] = field(default_factory=list)  # of a federation
    planned: int = 0  # rounds in all
    state: str = "finished"  # or: running, stopped, waiting (for the first round)
    log: Path = Path()  # where the rounds are from
    gathering: int = 0  # clients that a federation's server waits for before its first round

    @property
    def finished(self) -> bool:
        """Whether its results are final; baselines may still be trained."""
        return bool(self.clients)

    def identities(self) -> NDArray[np.int16]:
        """Cluster of each training client in each round: [m, T], -1 where it did not take part."""
        m = self.summary["clients"]
        table = np.full((m, len(self.rounds)), -1, np.int16)
        for t, record in enumerate(self.rounds):
            everybody = slice(len(record["identity"]))  # who joined later stands behind
            who = everybody if record["clients"] is None else record["clients"]
            table[who, t] = record["identity"]
        return table


def is_finished(path: Path) -> bool:
    """Whether all result files are there; the summary is written last."""
    return all((path / name).is_file() for name in FILES)


def read_run(path: Path) -> RunFolder:
    """Read a finished run and its baselines."""
    if not path.is_dir():
        raise InvalidInput(f"{path}: no such run folder")
    for name in FILES:
        if not (path / name).is_file():
            raise InvalidInput(f"{path}: has no {name}; is it a finished run? ('ifca resume {path}' goes on)")
    summary = with_facts(_json(path / "summary.json"))
    rounds = read_jsonl(path / "rounds.jsonl")
    if "places" in summary and summary["clusters"] is not None:
        rounds = renumbered(rounds, summary["places"], summary["k"])
    clients = read_clients(path)
    done = [name for name, one in summary.get("baselines", {}).items() if "error" not in one]
    others = {name: read_run(path / "baselines" / name) for name in done}
    faults = read_jsonl(path / "faults.jsonl")
    return RunFolder(
        path, summary, rounds, clients, others, faults, summary["rounds"], log=path / "rounds.jsonl"
    )


def with_facts(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary that says of its method what reports need; older ones do not."""
    known = facts_of(summary["algorithm"]) | summary.get("method", {})
    return {"models": len(summary.get("clusters") or ())} | summary | {"method": known}


def _json(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text())
    except json.JSONDecodeError as reason:
        raise InvalidInput(f"{file}: not valid JSON ({reason}); it was cut off or altered") from reason
    return content
