"""One preparation for the tables of all clients: each tells statistics of its columns, which are added up."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict

from ifca.data import Federation
from ifca.data.column_statistics import ColumnStatistics, merged
from ifca.data.files import write_atomically
from ifca.data.fit_preparation import fitted
from ifca.data.preparation import Preparation
from ifca.engines.flower import Session
from ifca.engines.flower.faults import Unusable, content_of
from ifca.engines.flower.records import REPLY, TURN
from ifca.runs.config import Config
from ifca.runs.own_data_config import FolderData

PREPARED, STATISTICS = "preparation.json", "statistics"


def prepare(session: Session, config: Config, out: Path, clients: int, timeout: float) -> None:
    """Let the session know how tables are prepared: as the run kept it, or by what its clients tell.

    Only a config of own files has tables. clients: nodes to wait for before they are asked.
    """
    file = out / PREPARED
    if file.exists():
        session.preparation = file.read_text("utf-8")
        return
    if not isinstance(config.data, FolderData):
        return
    deadline, said = time.monotonic() + timeout, -1
    while (here := len(session.exchange.nodes())) < clients and time.monotonic() < deadline:
        if here != said:
            session.say(
                f"{here} of {clients} clients are connected, to tell how their tables are; {timeout:g} s"
            )
            said = here
        time.sleep(session.exchange.poll)
    session.say("asking the clients for statistics of their tables")
    told = [one for one in _asked(session, STATISTICS) if one]
    made = _agreed(told, config.data)
    if made is not None:
        session.preparation = json.dumps(made.to_json())


def keep(session: Session, out: Path) -> None:
    """Write it into the run, for those who resume it."""
    if session.preparation:
        write_atomically(out / PREPARED, session.preparation.encode())


def read_told(text: str) -> Preparation | None:
    """What a server told of tables; empty: nothing."""
    return Preparation.from_json(json.loads(text) if text else None)


def with_preparation(federation: Federation, session: Session) -> Federation:
    """The server's view of a federation, with what is kept beside the models."""
    made = read_told(session.preparation)
    return federation if made is None else replace(federation, preparation=made, features=made.features)


def statistics_json(statistics: dict[str, ColumnStatistics], label: tuple[str, ...]) -> dict[str, Any]:
    """What a client tells of its table."""
    return {"columns": {name: one.to_json() for name, one in statistics.items()}, "label": list(label)}


def _asked(session: Session, part: str) -> list[dict[str, Any]]:
    """The answers of all nodes to a question about their tables; what cannot be read is a fault."""
    nodes, exchange = session.exchange.nodes(), session.exchange
    content = {node: RecordDict({TURN: ConfigRecord({"part": part})}) for node in nodes}
    answers = exchange.send_and_receive("query", content)
    return [_answer(session, node, answers.replies.get(node), part) for node in nodes]


def _answer(session: Session, node: int, message: Message | None, part: str) -> dict[str, Any]:
    """What one node told, checked; nothing and a fault where it cannot be read."""
    try:
        reply: Any = content_of(message).content.config_records[REPLY]
        told: dict[str, Any] = json.loads(reply[part]) if part in reply else {}
        if "columns" in told:
            columns = {name: ColumnStatistics.from_json(one) for name, one in told["columns"].items()}
            return {"columns": columns, "label": tuple(map(str, told["label"]))}
        return {} if "preparation" not in told else {"ready": Preparation.from_json(told["preparation"])}
    except (Unusable, KeyError, ValueError, TypeError, AttributeError) as reason:
        session.faults.add(0, "?", node, "malformed", f"told nothing of its table ({reason})")
        return {}


def _agreed(told: list[dict[str, Any]], data: FolderData) -> Preparation | None:
    """The preparation by the statistics of all clients, or the one that they have already."""
    for one in told:
        if "ready" in one:
            made: Preparation = one["ready"]
            return made
    tables = [one for one in told if "columns" in one]
    if not tables:
        return None
    # What most tables have: a column that one client has alone would shut out all the others.
    label, names = Counter((one["label"], frozenset(one["columns"])) for one in tables).most_common(1)[0][0]
    alike = [one["columns"] for one in tables if one["label"] == label and names <= one["columns"].keys()]
    return fitted(
        merged({name: told for name, told in one.items() if name in names} for one in alike),
        label,
        data.columns,
        task=data.task,
        classes=data.classes,
        named=bool(data.features),
        refuse_holes=data.missing == "refuse",
    )
