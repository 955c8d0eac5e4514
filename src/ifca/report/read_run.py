"""A run's folder as data for tables, figures and pages. Reads only; never trains.

A damaged run is read as far as it goes: what is not what the run wrote is left out and named, but for the
log, whose rounds before the damage are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput, Unreadable
from ifca.core.numbering import renumbered
from ifca.data.formats.whole_file import read_whole
from ifca.data.jsonl import readable_jsonl
from ifca.methods import facts_of
from ifca.report.misfits import fitting_clients, fitting_rounds
from ifca.runs.clients_table import CLIENTS, read_clients
from ifca.runs.record_schema import Fault, RoundRecord
from ifca.runs.run_folder import FAULTS, ROUNDS
from ifca.runs.summary_file import damaged_results, read_summary

Record = dict[str, Any]
FILES = ("summary.json", ROUNDS, CLIENTS)


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
    damage: tuple[str, ...] = ()  # a sentence for each file that is not what the run wrote

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
    """Read a finished run and its baselines; refused where its summary is not what it wrote."""
    if not path.is_dir():
        raise InvalidInput(f"{path}: no such run folder")
    for name in FILES:
        if not (path / name).is_file():
            raise InvalidInput(f"{path}: has no {name}; is it a finished run? ('ifca resume {path}' goes on)")
    summary, damage = with_facts(read_summary(path)), damaged_results(path)
    lost = {file for file in FILES if any(sentence.startswith(f"{path / file}: ") for sentence in damage)}
    rounds, wrong = read_log(path / ROUNDS, summary["clients"], summary["k"])
    if wrong is not None and ROUNDS not in lost:
        damage.append(wrong)
    if "places" in summary and summary["clusters"] is not None:
        rounds = renumbered(rounds, summary["places"], summary["k"])
    clients: list[dict[str, str]] = []
    if CLIENTS not in lost:
        clients, wrong = readable_clients(path, summary)
        damage += [] if wrong is None else [wrong]
    others, more = _baselines(path, summary)
    faults, wrong = read_faults(path)
    damage += [*more, *([] if wrong is None else [wrong])]
    log, planned = path / ROUNDS, summary["rounds"]
    return RunFolder(path, summary, rounds, clients, others, faults, planned, log=log, damage=tuple(damage))


def _baselines(path: Path, summary: dict[str, Any]) -> tuple[dict[str, RunFolder], list[str]]:
    """The finished ones, and what is wrong with others."""
    found, damage = {}, list[str]()
    for name, one in summary.get("baselines", {}).items():
        if "error" not in one:
            try:
                found[name] = read_run(path / "baselines" / Path(name).name)
                damage += found[name].damage
            except InvalidInput as reason:
                damage.append(str(reason))
    return found, damage


def read_log(file: Path, clients: int, k: int) -> tuple[list[Record], str | None]:
    """The rounds of a log before the first that is damaged, and what is wrong with that."""
    content = read_whole(file)
    found, damage = readable_jsonl(file, content[: content.rfind(b"\n") + 1], kind=RoundRecord)
    return fitting_rounds(file, found, damage, clients, k)


def read_faults(path: Path) -> tuple[list[Record], str | None]:
    """What went wrong in a federation; none where there was none."""
    if not (path / FAULTS).is_file():
        return [], None
    content = read_whole(path / FAULTS)
    return readable_jsonl(path / FAULTS, content[: content.rfind(b"\n") + 1], kind=Fault)


def readable_clients(path: Path, summary: dict[str, Any]) -> tuple[list[dict[str, str]], str | None]:
    """The rows of clients.csv; none where something is wrong with them, which is said."""
    try:
        return fitting_clients(path / CLIENTS, read_clients(path), summary), None
    except Unreadable as reason:
        return [], str(reason)


def with_facts(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary that says of its method what reports need; older ones do not."""
    known = facts_of(summary["algorithm"]) | summary.get("method", {})
    return {"models": len(summary.get("clusters") or ())} | summary | {"method": known}
